// Whatever a store gives back is a job or an error. An input is a list of records, each behind its length in
// two bytes; the first is a snapshot where the first byte of all is odd.
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "planner/service/state/job_state.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

struct Log {
  bool has_snapshot = false;
  // The snapshot, if there is one, and then the events.
  std::vector<std::string> records;
};

Log Read(const uint8_t* data, size_t size) {
  Log log;
  if (size == 0) return log;
  log.has_snapshot = data[0] % 2 == 1;
  for (size_t place = 1; place + 2 <= size;) {
    const size_t length = std::min<size_t>(data[place] + 256 * data[place + 1], size - place - 2);
    log.records.emplace_back(reinterpret_cast<const char*>(data + place + 2), length);
    place += 2 + length;
  }
  return log;
}

size_t Write(const Log& log, uint8_t* data, size_t max_size) {
  data[0] = log.has_snapshot ? 1 : 0;
  size_t size = 1;
  for (const std::string& record : log.records) {
    if (record.size() > UINT16_MAX || size + 2 + record.size() > max_size) break;
    data[size] = record.size() % 256;
    data[size + 1] = static_cast<uint8_t>(record.size() / 256);
    std::memcpy(data + size + 2, record.data(), record.size());
    size += 2 + record.size();
  }
  return size;
}

store::v1::Event RandomEvent(MessageMutator& mutator) {
  store::v1::Event event;
  switch (mutator.Below(9)) {
    case 0:
      event.mutable_batches_accepted()->add_hashes("hash");
      break;
    case 1:
      event.mutable_iteration_planned()->set_iteration(mutator.Below(5));
      break;
    case 2:
      event.mutable_worker_registered()->set_rank(static_cast<uint32_t>(mutator.Below(3)));
      event.mutable_worker_registered()->set_opens_epoch(mutator.Below(2) == 0);
      break;
    case 3:
      event.mutable_worker_failed()->set_rank(static_cast<uint32_t>(mutator.Below(3)));
      break;
    case 4:
      event.mutable_worker_left()->set_rank(static_cast<uint32_t>(mutator.Below(3)));
      break;
    case 5:
    case 6:
      event.mutable_iteration_reported()->set_rank(static_cast<uint32_t>(mutator.Below(3)));
      event.mutable_iteration_reported()->set_iteration(mutator.Below(5));
      break;
    case 7:
      event.mutable_job_drained();
      break;
    default:
      event.mutable_rendezvous_opened()->set_address("host:1");
  }
  return event;
}

// A few changes: of a record's fields, or another event behind the last.
void Change(MessageMutator& mutator, Log& log) {
  if (log.records.empty()) {
    store::v1::Event first;
    *first.mutable_job_registered()->mutable_spec() = MakeJob("job");
    log = {mutator.Below(2) == 0, {first.SerializeAsString()}};
    if (log.has_snapshot) log.records[0] = JobState(MakeJob("job")).Save().SerializeAsString();
  }
  if (mutator.Below(2) == 0) {
    log.records.push_back(RandomEvent(mutator).SerializeAsString());
    return;
  }
  const size_t record = mutator.Below(log.records.size());
  store::v1::JobSnapshot snapshot;
  store::v1::Event event;
  google::protobuf::Message* message = &event;
  if (log.has_snapshot && record == 0) message = &snapshot;
  if (!message->ParseFromString(log.records[record])) return;
  mutator.Apply(*message);
  log.records[record] = message->SerializePartialAsString();
}

}  // namespace
}  // namespace penstock

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  penstock::MessageMutator mutator(seed);
  if (mutator.Below(10) == 0 && size > 0) return LLVMFuzzerMutate(data, size, max_size);
  penstock::Log log = penstock::Read(data, size);
  for (uint64_t changes = 1 + mutator.Below(4); changes > 0; --changes) penstock::Change(mutator, log);
  return penstock::Write(log, data, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  penstock::Log log = penstock::Read(data, size);
  std::optional<std::string> snapshot;
  if (log.has_snapshot && !log.records.empty()) {
    snapshot = log.records.front();
    log.records.erase(log.records.begin());
  }
  const absl::StatusOr<penstock::JobState> state = penstock::ReplayJob(snapshot, log.records);
  if (!state.ok()) return 0;
  // What was read is saved and read again.
  if (!penstock::ReplayJob(state->Save().SerializePartialAsString(), {}).ok()) __builtin_trap();
  return 0;
}
