// Thousands of requests that were valid until a random change, and bytes that never were: whatever comes,
// the planner answers with a status that is the client's fault or its own state, and afterwards serves as
// before.
//
// PENSTOCK_RANDOM_REQUESTS (1,000) and PENSTOCK_SEED set how many and which.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/grpc/channel.h"
#include "common/sync/sync.h"
#include "tests/integration/bad_input/planner_under_test.h"
#include "tests/support/environment.h"
#include "tests/support/message_mutator.h"
#include "tests/support/raw_call.h"

namespace penstock {
namespace {

struct RandomRequest {
  std::string method;
  std::string bytes;
};

// The request of a number: the same seed, the same requests.
RandomRequest MakeRequest(uint32_t seed) {
  static constexpr const char* kValid[] = {
      "RegisterJob gpt", "RegisterJob t5", "PlanBatch gpt",   "PlanBatch job",  "SubmitBatches",
      "RegisterWorker",  "Heartbeat",      "ReportIteration", "StreamPrograms", "GetJob",
      "GetIteration",    "DrainJob",       "DeleteJob",       "ListJobs",       "ChangeStrategies"};
  MessageMutator mutator(seed);
  const std::string name = kValid[mutator.Below(std::size(kValid))];
  const auto message = ValidRequest(name);
  for (uint64_t changes = mutator.Below(6); changes > 0; --changes) mutator.Apply(*message);
  RandomRequest request{name.substr(0, name.find(' ')), ""};
  // Strings that are not UTF-8 are written too, with a complaint on stderr.
  message->SerializeToString(&request.bytes);
  const uint64_t kind = mutator.Below(20);
  if (kind == 0) {  // nothing but noise
    request.bytes.resize(mutator.Below(200));
    for (char& byte : request.bytes) byte = static_cast<char>(mutator.Below(256));
  } else if (kind <= 3 && !request.bytes.empty()) {  // a few wrong bytes, or an early end
    request.bytes[mutator.Below(request.bytes.size())] = static_cast<char>(mutator.Below(256));
    if (kind == 3) request.bytes.resize(mutator.Below(request.bytes.size()));
  } else if (kind == 4) {  // to another method
    const std::string other = kValid[mutator.Below(std::size(kValid))];
    request.method = other.substr(0, other.find(' '));
  }
  return request;
}

bool IsAnswer(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return true;
    default:
      return false;
  }
}

class RandomRequests : public testing::Test {
 protected:
  // Sends the requests from `from` to before `to`, several at a time.
  void Send(uint32_t from, uint32_t to) {
    std::atomic<uint32_t> next = from;
    std::vector<std::thread> senders;
    for (int i = 0; i < kSenders; ++i) {
      senders.emplace_back([&] {
        for (uint32_t number = next++; number < to; number = next++) SendOne(number);
      });
    }
    for (std::thread& sender : senders) sender.join();
  }

  void SendOne(uint32_t number) {
    const RandomRequest request = MakeRequest(seed_ + number);
    const bool stream = request.method == "StreamPrograms";  // ends when nobody waits any more
    const absl::Status status =
        CallRaw(channel_, request.method, request.bytes, stream ? kStreamDeadline : kDeadline);
    MutexLock lock(&mutex_);
    ++answers_[absl::StatusCodeToString(status.code())];
    const bool too_long =
        absl::IsDeadlineExceeded(status) && absl::StrContains(status.message(), "planning-limit");
    EXPECT_TRUE(IsAnswer(status.code()) || too_long || (stream && absl::IsDeadlineExceeded(status)))
        << "PENSTOCK_SEED=" << seed_ << ", request " << number << ": " << request.method << " \""
        << absl::CHexEscape(request.bytes.substr(0, 400)) << "\"\n"
        << status;
  }

  static constexpr int kSenders = 4;
  static constexpr absl::Duration kDeadline = absl::Seconds(20);
  static constexpr absl::Duration kStreamDeadline = absl::Milliseconds(100);

  const uint32_t seed_ = FromEnvironment("PENSTOCK_SEED", 1);
  const uint32_t requests_ = FromEnvironment("PENSTOCK_RANDOM_REQUESTS", 1000);
  std::shared_ptr<grpc::Channel> channel_;
  Mutex mutex_;
  std::map<std::string, int> answers_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(RandomRequests, LeaveThePlannerServing) {
  constexpr uint32_t kRound = 250;
  constexpr int64_t kMegabyte = 1 << 20;
  // What a plan may take of time and memory is bounded, so that many are tried.
  const auto planner =
      PlannerUnderTest::Start({"--planning-limit-seconds", "0.3", "--max-jobs", "8", "--job-memory", "4MB",
                               "--memory", "16MB", "--log-level", "error"});
  ASSERT_TRUE(planner.ok()) << planner.status();
  channel_ = CreateClientChannel((*planner)->process().address());
  int64_t warm = 0;
  for (uint32_t first = 0; first < requests_; first += kRound) {
    Send(first, std::min(first + kRound, requests_));
    ASSERT_TRUE((*planner)->process().IsRunning()) << "PENSTOCK_SEED=" << seed_ << "\n"
                                                   << (*planner)->process().Log();
    const absl::Status again = (*planner)->BeginAgain();
    ASSERT_TRUE(again.ok()) << again;
    if (first == 0) warm = (*planner)->process().ResidentBytes();
  }
  const int64_t resident = (*planner)->process().ResidentBytes();
  MutexLock lock(&mutex_);
  std::cout << "PENSTOCK_SEED=" << seed_ << ": " << requests_ << " requests;";
  for (const auto& [code, count] : answers_) std::cout << " " << code << " " << count;
  std::cout << "; resident " << warm / kMegabyte << " MB after " << kRound << ", " << resident / kMegabyte
            << " MB at the end\n";
  if (kMemoryIsJudged) {
    EXPECT_LT(resident, warm + 32 * kMegabyte);
  }
  (*planner)->ExpectServing();
}

}  // namespace
}  // namespace penstock
