// `penstock trace`: what the ranks of a live job did and when, for Perfetto and for `penstock diagnose`.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/diagnose/job_iterations.h"

namespace penstock::cli {
namespace {

struct TraceFlags {
  JobIterationFlags iterations;
  std::string out;
};

absl::Status RunTrace(const TraceFlags& flags) {
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(CheckWritable(flags.out), "--out"));
  PENSTOCK_ASSIGN_OR_RETURN(const JobRecord record, RecordIterations(flags.iterations));
  const TraceRecorder& recorder = record.iterations;
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(recorder.Write(flags.out), "--out"));
  if (const std::string note = recorder.ClockNote(); !note.empty()) std::cout << note << "\n";
  if (recorder.forgotten() > 0) {
    std::cout << "the first " << recorder.forgotten()
              << " of these iterations are left out: a trace holds as much as can be looked at\n";
  }
  std::cout << "wrote " << flags.out << ": open it in ui.perfetto.dev, or penstock diagnose --trace "
            << flags.out << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddTraceCommand(CommandSet& commands) {
  CLI::App* command = commands.Add(
      {.name = "trace",
       .purpose = "Writes what the ranks of a job did and when as a Chrome trace",
       .examples = "penstock trace --planner localhost:7070 --job mix --out mix.json\n"
                   "penstock trace --planner localhost:7070 --job mix --iterations 100:110 --out mix.json"});
  const auto flags = std::make_shared<TraceFlags>();
  flags->iterations.AddTo(*command);
  command->get_option("--job")->required();
  command->get_option("--planner")->required();
  command->add_option("--out", flags->out, "The file, .json")->required();
  commands.OnRun(command, [flags] { return RunTrace(*flags); });
}

}  // namespace penstock::cli
