// `penstock diagnose`: where the time of training steps went, and what mending each cause would bring.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/diagnose/chrome_trace.h"
#include "planner/cli/diagnose/csv_trace.h"
#include "planner/cli/diagnose/diagnosis_report.h"
#include "planner/cli/diagnose/job_iterations.h"
#include "planner/cli/diagnose/right_costs.h"
#include "planner/core/diagnose/diagnose.h"
#include "planner/core/timeline/timeline_of_iterations.h"

namespace penstock::cli {
namespace {

struct DiagnoseFlags {
  // One of the two.
  std::string trace;
  JobIterationFlags job;
  bool json = false;
};

absl::StatusOr<core::Timeline> ReadTrace(const std::string& path) {
  const bool chrome = absl::EndsWith(path, ".json") || absl::EndsWith(path, ".json.gz");
  return chrome ? ReadChromeTrace(path) : ReadCsvTrace(path);
}

struct Diagnosed {
  core::Timeline timeline = {};
  core::Diagnosis diagnosis = {};
  // What is to be said beside it; empty: nothing.
  std::string note = {};
};

absl::StatusOr<Diagnosed> DiagnoseTrace(const std::string& path) {
  Diagnosed diagnosed;
  PENSTOCK_ASSIGN_OR_RETURN(diagnosed.timeline, ReadTrace(path));
  PENSTOCK_ASSIGN_OR_RETURN(diagnosed.diagnosis, core::Diagnose(diagnosed.timeline));
  return diagnosed;
}

absl::StatusOr<Diagnosed> DiagnoseJob(const JobIterationFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const JobRecord record, RecordIterations(flags));
  Diagnosed diagnosed = {.note = record.iterations.ClockNote()};
  PENSTOCK_ASSIGN_OR_RETURN(diagnosed.timeline, core::TimelineOfIterations(record.iterations.Measurements()));
  PENSTOCK_ASSIGN_OR_RETURN(diagnosed.diagnosis, core::Diagnose(diagnosed.timeline));
  PENSTOCK_RETURN_IF_ERROR(AddGainOfRightCosts(record, diagnosed.diagnosis));
  return diagnosed;
}

absl::StatusOr<Diagnosed> DiagnoseWhatIsAskedFor(const DiagnoseFlags& flags) {
  if (flags.trace.empty() == flags.job.job.empty())
    return absl::InvalidArgumentError("give either --trace, or --planner and --job");
  absl::StatusOr<Diagnosed> diagnosed =
      flags.trace.empty() ? DiagnoseJob(flags.job) : DiagnoseTrace(flags.trace);
  if (diagnosed.ok()) return diagnosed;
  return flags.trace.empty() ? diagnosed.status() : AnnotateError(diagnosed.status(), "--trace");
}

absl::Status RunDiagnose(const DiagnoseFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const Diagnosed diagnosed, DiagnoseWhatIsAskedFor(flags));
  if (flags.json)
    std::cout << DiagnosisJson(diagnosed.timeline, diagnosed.diagnosis).dump(2) << "\n";
  else
    std::cout << DiagnosisReport(diagnosed.timeline, diagnosed.diagnosis);
  // Not among JSON.
  if (!diagnosed.note.empty()) std::cerr << diagnosed.note << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddDiagnoseCommand(CommandSet& commands) {
  CLI::App* command = commands.Add(
      {.name = "diagnose",
       .purpose = "Says where the time of training steps went: of a job, or of any framework's trace",
       .examples = "penstock diagnose --planner localhost:7070 --job mix\n"
                   "penstock diagnose --trace steps.csv.gz\n"
                   "penstock up ... --trace trace.json; penstock diagnose --trace trace.json"});
  const auto flags = std::make_shared<DiagnoseFlags>();
  command->add_option(
      "--trace", flags->trace,
      "What ranks did and when: CSV, or a Chrome trace (.json); plain or gzip (docs/diagnosis.md)");
  flags->job.AddTo(*command);
  command->add_flag("--json", flags->json, "Print JSON");
  commands.OnRun(command, [flags] { return RunDiagnose(*flags); });
}

}  // namespace penstock::cli
