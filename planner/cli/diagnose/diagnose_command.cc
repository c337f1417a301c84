// `penstock diagnose`: where the time of training steps went, and what mending each cause would bring.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "planner/cli/commands.h"
#include "planner/cli/diagnose/chrome_trace.h"
#include "planner/cli/diagnose/csv_trace.h"
#include "planner/cli/diagnose/diagnosis_report.h"
#include "planner/core/diagnose/diagnose.h"

namespace penstock::cli {
namespace {

struct DiagnoseFlags {
  std::string trace;
  bool json = false;
};

absl::StatusOr<core::Timeline> ReadTrace(const std::string& path) {
  const bool chrome = absl::EndsWith(path, ".json") || absl::EndsWith(path, ".json.gz");
  return chrome ? ReadChromeTrace(path) : ReadCsvTrace(path);
}

absl::Status RunDiagnose(const DiagnoseFlags& flags) {
  const absl::StatusOr<core::Timeline> timeline = ReadTrace(flags.trace);
  if (!timeline.ok()) return AnnotateError(timeline.status(), "--trace");
  const absl::StatusOr<core::Diagnosis> diagnosis = core::Diagnose(*timeline);
  if (!diagnosis.ok()) return AnnotateError(diagnosis.status(), absl::StrCat("--trace ", flags.trace));
  if (flags.json)
    std::cout << DiagnosisJson(*timeline, *diagnosis).dump(2) << "\n";
  else
    std::cout << DiagnosisReport(*timeline, *diagnosis);
  return absl::OkStatus();
}

}  // namespace

void AddDiagnoseCommand(CommandSet& commands) {
  CLI::App* command =
      commands.Add({.name = "diagnose",
                    .purpose = "Says where the time of training steps went, from a trace of any framework.",
                    .examples = "penstock diagnose --trace steps.csv.gz\n"
                                "penstock up ... --trace trace.json; penstock diagnose --trace trace.json"});
  const auto flags = std::make_shared<DiagnoseFlags>();
  command
      ->add_option(
          "--trace", flags->trace,
          "What ranks did and when: CSV, or a Chrome trace (.json); plain or gzip (docs/diagnosis.md)")
      ->required();
  command->add_flag("--json", flags->json, "Print JSON");
  commands.OnRun(command, [flags] { return RunDiagnose(*flags); });
}

}  // namespace penstock::cli
