// What a worker wants of the planner: a rank, its programs, and someone to report to. The planner's client
// (planner_agent.h) implements it; tests use a fake.
//
// Plain values only: neither protobuf nor LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/program/job.h"
#include "worker/program/program.h"

namespace penstock::worker {

// What registration answered.
struct Registration {
  uint32_t rank = 0;
  uint64_t epoch = 0;
  // What the workers of the epoch share; never shown. Empty: a planner of an older version.
  std::string epoch_secret = {};
  JobConfig job;
};

// All ranks are there.
struct Rendezvous {
  // "host:port" of the store that rank 0 serves.
  std::string address;
  // In rank order.
  std::vector<std::string> hosts;
};

// A program, or the end of the job.
struct NextProgram {
  bool finished = false;
  // Null when finished.
  std::shared_ptr<const Program> program;
  // How long the caller waited for it.
  absl::Duration waited;
};

struct MeasuredInstruction {
  uint32_t id = 0;
  // Nanoseconds since the start of the iteration.
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
  // See v1::MeasuredInstruction.
  std::optional<int64_t> exchange_ns = {};
};

// Units as in TaskLoss.
struct MeasuredTask {
  uint32_t task = 0;
  double loss = 0;
  double weight = 0;
};

// Of the gradients that a rank speaks for (v1::PartNorm).
struct MeasuredPart {
  // v1::ModelPart.
  uint32_t part = 0;
  double norm = 0;
};

// Units as in ValidationReport.
struct ValidationReport {
  std::vector<MeasuredInstruction> instructions = {};
  int64_t duration_ns = 0;
  double loss = 0;
  std::vector<MeasuredTask> tasks = {};
  int64_t peak_memory_bytes = 0;
};

// Units as in ReportIterationRequest.
struct IterationReport {
  uint64_t iteration = 0;
  std::vector<MeasuredInstruction> instructions = {};
  int64_t duration_ns = 0;
  int64_t waited_for_program_ns = 0;
  int64_t started_unix_ns = 0;
  int64_t lone_pass_ns = 0;
  int64_t lone_pass_core_ns = 0;
  double loss = 0;
  double router_balance_loss = 0;
  double router_z_loss = 0;
  std::vector<uint64_t> expert_rows = {};
  std::vector<uint64_t> fullest_expert_rows = {};
  uint64_t routed_expert_rows = 0;
  uint64_t dropped_expert_rows = 0;
  double gradient_norm = 0;
  std::vector<MeasuredPart> parts = {};
  double learning_rate = 0;
  int64_t peak_memory_bytes = 0;
  std::vector<MeasuredTask> tasks = {};
  std::optional<ValidationReport> validation = {};
};

// Every method returns within a bounded time after the epoch has failed or Stop was called; what it returns
// then is the failure. Calls come from one thread; only Stop may come from any.
class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  virtual const Registration& registration() const = 0;

  // Rank 0: tells the others where its store is.
  virtual void AnnounceRendezvous(const std::string& address) = 0;
  // Blocks until all ranks are there.
  // Possible errors: DEADLINE_EXCEEDED (they are not within `timeout`), or the failure of the epoch.
  virtual absl::StatusOr<Rendezvous> WaitUntilReady(absl::Duration timeout) = 0;

  // Asks for the programs from this iteration on. Call it once.
  virtual void StartPrograms(uint64_t first_iteration) = 0;
  // The next one in iteration order. Blocks until it is there.
  virtual absl::StatusOr<NextProgram> Next() = 0;
  // The program that Next returns next, where it is there already; null: it is not, or there is none.
  virtual std::shared_ptr<const Program> Upcoming() = 0;

  // Hands a report over to be sent in the background, in order. Blocks only when many are unsent.
  virtual absl::Status Report(IterationReport report) = 0;
  // Blocks until all reports have arrived.
  // Possible errors: DEADLINE_EXCEEDED, or the failure of the epoch.
  virtual absl::Status FlushReports(absl::Duration timeout) = 0;
  // One more than the iteration of the last report that has arrived; 0: none has.
  virtual uint64_t Reported() const = 0;

  // Tells the planner that this worker cannot go on in this epoch; tries again while it does not answer, for
  // as long as `timeout`. Returns what the planner says the epoch failed of, which names the rank that failed
  // first, with the code of `failure`; `failure` where the planner does not answer; the failure of the epoch
  // as it was where that is known already.
  virtual absl::Status ReportFailure(const absl::Status& failure, absl::Duration timeout) = 0;
  // Tells the planner that the worker ends in good order. Blocks for a second at most.
  virtual void Leave() = 0;
};

}  // namespace penstock::worker
