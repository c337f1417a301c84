#include "worker/profile/provenance.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "common/held_out/disturbance.h"
#include "common/held_out/measured_contexts.h"
#include "common/version/version.h"

namespace penstock::worker {
namespace {

// What stands behind the colon of the first line that begins so; empty: there is none.
std::string ValueOf(const std::string& file, absl::string_view name) {
  const std::string text = ReadFile(file).value_or("");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t colon = line.find(':');
    if (!absl::StartsWith(line, name) || colon == absl::string_view::npos) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

// GPUs of one machine are taken to be alike.
std::string GpuOf(const std::string& proc) {
  std::error_code error;
  std::string model;
  for (const auto& gpu : std::filesystem::directory_iterator(proc + "/driver/nvidia/gpus", error)) {
    model = ValueOf((gpu.path() / "information").string(), "Model");
    if (!model.empty()) break;
  }
  const std::string driver = ValueOf(proc + "/driver/nvidia/version", "NVRM version");
  if (model.empty()) return "an unknown GPU";
  return driver.empty() ? model : absl::StrCat(model, " (", driver, ")");
}

}  // namespace

std::string HardwareOf(const std::string& device, const std::string& proc) {
  if (absl::StartsWith(device, "cuda")) return GpuOf(proc);
  const std::string processor = ValueOf(proc + "/cpuinfo", "model name");
  return processor.empty() ? "an unknown processor" : processor;
}

std::string CommentOf(const Provenance& provenance, const std::string& hardware) {
  const std::string comment = absl::StrFormat(
      "measured by %s profile on %s UTC with %d %s of %s%s, %s, LibTorch %s%s: medians, closed form fitted "
      "by "
      "relative least squares in which outliers count less; repeats of a layer differ by %.1f %%%s",
      VersionOf("penstock-worker"),
      absl::FormatTime("%Y-%m-%d %H:%M", provenance.measured_at, absl::UTCTimeZone()), provenance.threads,
      provenance.threads == 1 ? "thread" : "threads", hardware,
      provenance.shared_cores ? ", whose cores ranks share" : "",
      provenance.workers > 1 ? absl::StrFormat("one of %d workers side by side", provenance.workers)
                             : "with no other worker beside it",
      provenance.libtorch, provenance.compiler.empty() ? "" : absl::StrCat(", ", provenance.compiler),
      100 * provenance.spread,
      provenance.memory_differences.empty()
          ? ""
          : absl::StrCat("; bytes by the allocator, ", provenance.memory_differences));
  return WithDisturbance(WithMeasuredContexts(comment, provenance.contexts), provenance.disturbance);
}

}  // namespace penstock::worker
