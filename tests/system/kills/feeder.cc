// Submits the batches of the tiny job as its window opens, until the job is over: what a framework does, as a
// process that can be killed. Started again it goes on with the iteration that the planner expects.
//
//   tiny_feeder 127.0.0.1:7070 job samples batch_size iterations
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "penstock/client/planner_client.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

// One batch each time: the tiny iterations, which take a few milliseconds, are to last.
constexpr absl::Duration kPoll = absl::Milliseconds(50);

// What the planner answers while it restarts, forms an epoch or has no room: another try will do.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status);
}

absl::Status Feed(PlannerClient& client, const std::string& job_id, const std::vector<v1::Batch>& batches) {
  for (;; absl::SleepFor(kPoll)) {
    v1::GetJobRequest ask;
    ask.set_job_id(job_id);
    ask.set_from_iteration(batches.size());
    const absl::StatusOr<v1::GetJobResponse> job = client.GetJob(ask);
    if (!job.ok()) {
      if (!IsPassing(job.status())) return job.status();
      continue;
    }
    if (job->status().state() == v1::JOB_STATE_FINISHED) return absl::OkStatus();
    v1::SubmitBatchesRequest request;
    request.set_job_id(job_id);
    if (job->status().next_iteration() >= batches.size()) continue;
    *request.add_batches() = batches[job->status().next_iteration()];
    const absl::Status status = client.SubmitBatches(request).status();
    if (!status.ok() && !IsPassing(status)) return status;
  }
}

int Main(int argc, char** argv) {
  uint64_t samples = 0;
  uint64_t size = 0;
  uint64_t iterations = 0;
  if (argc != 6 || !absl::SimpleAtoi(argv[3], &samples) || !absl::SimpleAtoi(argv[4], &size) ||
      !absl::SimpleAtoi(argv[5], &iterations)) {
    std::fprintf(stderr, "usage: tiny_feeder PLANNER JOB SAMPLES BATCH_SIZE ITERATIONS\n");
    return 2;
  }
  PlannerClient client(argv[1]);
  const absl::Status status = Feed(client, argv[2], TinyBatches(TinySamples(samples), size, iterations));
  if (status.ok()) return 0;
  std::fprintf(stderr, "tiny_feeder: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace penstock::testing

int main(int argc, char** argv) { return penstock::testing::Main(argc, argv); }
