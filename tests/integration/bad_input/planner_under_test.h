// A real planner in a state in which every request has something to be wrong about.
//
// It has the job "job" (a GPT on 2 ranks), whose iterations 0 to 3 are planned and whose rank 0 is held by
// incarnation 1 in epoch 1.
#pragma once

#include <google/protobuf/message.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/process/sanitized.h"
#include "tests/support/planner_process.h"

namespace penstock {

// Whether resident memory says anything: address sanitizer keeps what is freed for a while.
inline constexpr bool kMemoryIsJudged = !kSanitized;

class PlannerUnderTest {
 public:
  // `flags` are added to the planner's.
  static absl::StatusOr<std::unique_ptr<PlannerUnderTest>> Start(const std::vector<std::string>& flags = {});

  PlannerProcess& process() { return *process_; }

  // Deletes all jobs and makes the one above anew; tries again where a short --planning-limit-seconds was
  // over.
  absl::Status BeginAgain();

  // Health says SERVING, the job is where it was and a batch of it is planned; then it ends in good order.
  void ExpectServing();

 private:
  absl::Status TryToBeginAgain();

  explicit PlannerUnderTest(std::unique_ptr<PlannerProcess> process) : process_(std::move(process)) {}

  const std::unique_ptr<PlannerProcess> process_;
};

// A request that this planner takes: "RegisterJob gpt", "RegisterJob t5", "PlanBatch gpt", "PlanBatch job",
// or the name of another method with a job_id. Null for anything else.
std::unique_ptr<google::protobuf::Message> ValidRequest(const std::string& name);

}  // namespace penstock
