// penstock-worker: one rank of a job.

#include <cstdlib>
#include <iostream>

#include "common/logging/logging.h"
#include "common/process/leave_process.h"
#include "common/process/open_files.h"
#include "common/process/stop_signals.h"
#include "worker/memory/heap.h"
#include "worker/runtime/inference_commands.h"
#include "worker/runtime/profile_command.h"
#include "worker/runtime/rejoin.h"
#include "worker/runtime/shutdown.h"
#include "worker/runtime/worker_options.h"
#include "worker/runtime/worker_process.h"

namespace penstock::worker {
namespace {

// A worker that was told to end has this long to do so by itself. With the planner's time to notice a lost
// rank, every rank ends within 10 s of the cause.
constexpr absl::Duration kShutdownGrace = absl::Seconds(4);

int EndOfMeasurement(const absl::Status& status) {
  if (status.ok()) return 0;
  LogError("nothing was measured", {{"reason", status.ToString()}});
  return 1;
}

// For people: not in the form of the log.
int EndOfInference(const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << "penstock: " << status.message() << "\n";
  return IsWorthRestarting(status) ? 1 : 2;
}

int Run(int argc, char** argv) {
  const CommandLine command = ParseCommandLine(argc, argv, [](const char* name) { return getenv(name); });
  if (command.exit_status.has_value()) return *command.exit_status;
  // c10d's store looks up the name of every address it connects to. A name server that does not answer must
  // not hold up the start; what the user has set stays.
  setenv("RES_OPTIONS", "timeout:1 attempts:1", /*overwrite=*/0);
  // Virtual machines that announce AMX but lose its tile state end bfloat16 products of oneDNN with SIGILL.
  // On CPU a worker is for trying things out: the next best instructions do, unless the user says otherwise.
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", /*overwrite=*/0);
  KeepFreedMemory();
  if (command.profile.has_value()) return EndOfMeasurement(RunProfile(*command.profile));
  if (command.profile_check.has_value()) return EndOfMeasurement(RunProfileCheck(*command.profile_check));
  if (command.generate.has_value()) return EndOfInference(RunGenerate(*command.generate, std::cout));
  if (command.evaluate.has_value()) return EndOfInference(RunEvaluate(*command.evaluate, std::cout));
  BlockStopSignals();
  AllowManyOpenFiles();
  PrepareProcess();
  Shutdown shutdown(kShutdownGrace);
  const absl::Status status = RunWorker(command.run, shutdown);
  if (status.ok()) {
    LogInfo("finished", {{"job", command.run.job_id}});
    return 0;
  }
  LogError("the worker ends before the job is finished", {{"reason", status.ToString()}});
  return IsWorthRestarting(status) ? 1 : 2;
}

}  // namespace
}  // namespace penstock::worker

int main(int argc, char** argv) { penstock::LeaveProcess(penstock::worker::Run(argc, argv)); }
