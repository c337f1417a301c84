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
#include "planner/core/diagnose/diagnose.h"

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

absl::StatusOr<core::Timeline> TimelineOf(const DiagnoseFlags& flags) {
  if (flags.trace.empty() == flags.job.job.empty())
    return absl::InvalidArgumentError("give either --trace, or --planner and --job");
  if (flags.trace.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const TraceRecorder recorder, RecordIterations(flags.job));
    return ParseChromeTrace(absl::StrCat("job ", flags.job.job), recorder.ToJson());
  }
  absl::StatusOr<core::Timeline> timeline = ReadTrace(flags.trace);
  if (!timeline.ok()) return AnnotateError(timeline.status(), "--trace");
  return timeline;
}

absl::Status RunDiagnose(const DiagnoseFlags& flags) {
  const absl::StatusOr<core::Timeline> timeline = TimelineOf(flags);
  if (!timeline.ok()) return timeline.status();
  const absl::StatusOr<core::Diagnosis> diagnosis = core::Diagnose(*timeline);
  if (!diagnosis.ok())
    return AnnotateError(diagnosis.status(), flags.trace.empty() ? absl::StrCat("--job ", flags.job.job)
                                                                 : absl::StrCat("--trace ", flags.trace));
  if (flags.json)
    std::cout << DiagnosisJson(*timeline, *diagnosis).dump(2) << "\n";
  else
    std::cout << DiagnosisReport(*timeline, *diagnosis);
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
