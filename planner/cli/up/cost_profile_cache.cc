#include "planner/cli/up/cost_profile_cache.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files/files.h"
#include "common/process/child_process.h"
#include "common/process/log_tail.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/up/machine.h"

namespace penstock::cli {
namespace {

// Starting LibTorch and finishing the last measurement come on top of the time for measuring.
constexpr absl::Duration kGrace = absl::Seconds(60);
// On a busy machine it takes so many times as long, with a tensor degree.
constexpr int kMostWait = 4;
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);
constexpr size_t kShownLogLines = 4;

// "Intel(R) Xeon(R) CPU @ 2.20GHz" -> "intel-r-xeon-r-cpu-2-20ghz": part of a file name.
std::string Slug(absl::string_view text) {
  std::string slug;
  for (const char c : text) {
    if (absl::ascii_isalnum(c)) {
      slug.push_back(absl::ascii_tolower(c));
    } else if (!slug.empty() && slug.back() != '-') {
      slug.push_back('-');
    }
  }
  return slug;
}

std::string ProcessorName() {
  const absl::StatusOr<std::string> info = ReadFile("/proc/cpuinfo");
  if (!info.ok()) return "unknown-processor";
  for (const absl::string_view line : absl::StrSplit(*info, '\n')) {
    if (absl::StartsWith(line, "model name")) return Slug(line.substr(line.find(':') + 2));
  }
  return "unknown-processor";
}

// "-gpu-nvidia-h100-80gb-hbm3"; nothing for what is measured on CPU.
std::string GpuName(const MeasureOptions& options) {
  if (options.gpus.empty()) return "";
  const std::vector<std::string> models = GpuModels();
  return absl::StrCat("-gpu-", models.empty() ? "unknown" : Slug(absl::StrJoin(models, "-")));
}

// Grows when more is measured, so that what was cached before is not read.
constexpr absl::string_view kMeasurement = "6";

// "FEED_FORWARD_GATED_GELU" -> "-gated-gelu"; nothing for what the architecture has by itself.
std::string PartName(int value, absl::string_view name, absl::string_view prefix) {
  if (value == 0) return "";
  return absl::StrCat("-", Slug(absl::StripPrefix(name, prefix)));
}

std::string FeedForwardName(v1::FeedForward feed_forward) {
  return PartName(feed_forward, v1::FeedForward_Name(feed_forward), "FEED_FORWARD_");
}

std::string BiasesName(absl::string_view part, v1::Biases biases) {
  const std::string name = PartName(biases, v1::Biases_Name(biases), "BIASES_");
  return name.empty() ? "" : absl::StrCat("-", part, "-biases", name);
}

// Norms, positions and biases, by which passes and bytes differ.
std::string PartNames(const v1::ModelSpec& model) {
  return absl::StrCat(PartName(model.norm(), v1::Norm_Name(model.norm()), "NORM_"),
                      PartName(model.position(), v1::Position_Name(model.position()), "POSITION_"),
                      BiasesName("attention", model.attention_biases()),
                      BiasesName("ffn", model.feed_forward_biases()));
}

std::string Optional(absl::string_view name, uint32_t value) {
  return value == 0 ? "" : absl::StrCat("-", name, value);
}

absl::Status WriteModel(const v1::ModelSpec& model, const std::string& path) {
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(model, &json);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  return WriteFileAtomically(path, json);
}

absl::StatusOr<ExitStatus> WaitForEnd(ChildProcess& child, const MeasureOptions& options) {
  const absl::Time deadline = absl::Now() + kMostWait * absl::Seconds(options.seconds) + kGrace;
  while (absl::Now() < deadline) {
    if (const std::optional<ExitStatus> ended = child.Poll(); ended.has_value()) return *ended;
    if (options.stopped(kPollInterval)) return absl::CancelledError("stopped by a signal");
  }
  return absl::UnavailableError("the worker took too long");
}

// Runs `copies` measurements side by side; the first one's result counts, the others are its load.
absl::Status Measure(const MeasureOptions& options, const std::string& output) {
  const std::string model_path = absl::StrCat(output, ".model.json");
  PENSTOCK_RETURN_IF_ERROR(WriteModel(options.model, model_path));
  const std::string log = absl::StrCat(output, ".log");
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (uint32_t copy = 0; copy < options.copies; ++copy) {
    const std::string target = copy == 0 ? output : absl::StrCat(output, ".load-", copy);
    std::vector<std::string> arguments = {options.worker_binary,
                                          "profile",
                                          "--model-json",
                                          model_path,
                                          "--out",
                                          target,
                                          "--seconds",
                                          absl::StrCat(options.seconds),
                                          "--threads",
                                          absl::StrCat(options.threads),
                                          "--tensor",
                                          absl::StrCat(options.tensor),
                                          "--expert",
                                          absl::StrCat(options.expert)};
    if (options.copies * options.threads > std::max(1U, std::thread::hardware_concurrency())) {
      arguments.emplace_back("--shared-cores");
    }
    if (!options.gpus.empty()) arguments.push_back(absl::StrCat("--device=cuda:", options.gpus[copy]));
    PENSTOCK_ASSIGN_OR_RETURN(
        std::unique_ptr<ChildProcess> child,
        ChildProcess::Start({.arguments = std::move(arguments),
                             .environment = {{"OMP_NUM_THREADS", absl::StrCat(options.threads)}},
                             .log_path = log}));
    children.push_back(std::move(child));
  }
  const absl::StatusOr<ExitStatus> ended = WaitForEnd(*children.front(), options);
  children.clear();
  std::error_code ignored;
  std::filesystem::remove(model_path, ignored);
  for (uint32_t copy = 1; copy < options.copies; ++copy) {
    std::filesystem::remove(absl::StrCat(output, ".load-", copy), ignored);
  }
  if (!ended.ok()) return ended.status();
  if (!ended->ok()) {
    return absl::UnavailableError(absl::StrCat("the worker ", ended->ToString(), "; the end of ", log, ":\n",
                                               LogTail(log, kShownLogLines)));
  }
  std::filesystem::remove(log, ignored);
  return absl::OkStatus();
}

}  // namespace

std::string CostProfileName(const MeasureOptions& options) {
  const v1::ModelSpec& model = options.model;
  return absl::StrCat(
      model.architecture() == v1::ARCHITECTURE_T5 ? "t5" : "gpt", "-hidden", model.hidden(), "-heads",
      model.heads(), Optional("inner", model.attention_inner()), Optional("shared", model.key_value_heads()),
      PartNames(model), "-ffn", model.ffn(), FeedForwardName(model.feed_forward()),
      Optional("experts", model.experts()), Optional("of", model.experts_per_token()),
      model.head_norms() ? "-head-norms" : "", Optional("buckets", model.relative_position_buckets()),
      Optional("distance", model.relative_position_max_distance()), "-vocab", model.vocab(), "-length",
      model.max_sequence_length(), "-layers", model.encoder_layers() + model.layers(), "-",
      Slug(v1::DataType_Name(model.dtype())), "-threads", options.threads, "-workers", options.copies,
      Optional("tensor", options.tensor > 1 ? options.tensor : 0),
      Optional("expert", options.expert > 1 ? options.expert : 0), GpuName(options), "-", ProcessorName(),
      "-v", kMeasurement, ".json");
}

absl::StatusOr<MeasuredProfile> MeasureOrReadProfile(const MeasureOptions& options) {
  MeasuredProfile measured;
  measured.path = absl::StrCat(options.cache_dir, "/", CostProfileName(options));
  if (!std::filesystem::exists(measured.path)) {
    options.on_start();
    std::error_code error;
    std::filesystem::create_directories(options.cache_dir, error);
    if (error) {
      return absl::PermissionDeniedError(
          absl::StrCat("making folder '", options.cache_dir, "': ", error.message(), "; set PENSTOCK_CACHE"));
    }
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(Measure(options, measured.path), "measuring a cost profile"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(measured.file, ReadProfileFile("cached profile", measured.path));
  return measured;
}

}  // namespace penstock::cli
