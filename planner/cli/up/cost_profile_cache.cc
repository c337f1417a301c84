#include "planner/cli/up/cost_profile_cache.h"

#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files/files.h"
#include "common/hash/sha256.h"
#include "common/held_out/disturbance.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/up/machine.h"
#include "planner/cli/up/measuring_workers.h"
#include "planner/core/contract/model_experts.h"

namespace penstock::cli {
namespace {

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
constexpr absl::string_view kMeasurement = "12";

// "FEED_FORWARD_GATED_GELU" -> "-gated-gelu"; nothing for what the architecture has by itself.
std::string PartOfFileName(int value, absl::string_view name, absl::string_view prefix) {
  if (value == 0) return "";
  return absl::StrCat("-", Slug(absl::StripPrefix(name, prefix)));
}

std::string FeedForwardName(v1::FeedForward feed_forward) {
  return PartOfFileName(feed_forward, v1::FeedForward_Name(feed_forward), "FEED_FORWARD_");
}

std::string BiasesName(absl::string_view part, v1::Biases biases) {
  const std::string name = PartOfFileName(biases, v1::Biases_Name(biases), "BIASES_");
  return name.empty() ? "" : absl::StrCat("-", part, "-biases", name);
}

// Norms, positions and biases, by which passes and bytes differ.
std::string PartNames(const v1::ModelSpec& model) {
  return absl::StrCat(PartOfFileName(model.norm(), v1::Norm_Name(model.norm()), "NORM_"),
                      PartOfFileName(model.position(), v1::Position_Name(model.position()), "POSITION_"),
                      BiasesName("attention", model.attention_biases()),
                      BiasesName("ffn", model.feed_forward_biases()));
}

// "-lora8-query-value": rank and layers, by which passes differ; a scale takes no time.
std::string AdapterNames(const v1::ModelSpec& model) {
  if (!model.has_adapters()) return "";
  const std::set<int> targets(model.adapters().targets().begin(), model.adapters().targets().end());
  std::string name = absl::StrCat("-lora", model.adapters().rank());
  for (const int target : targets)
    absl::StrAppend(&name, PartOfFileName(target, v1::LinearLayer_Name(static_cast<v1::LinearLayer>(target)),
                                          "LINEAR_LAYER_"));
  return name;
}

std::string Optional(absl::string_view name, uint32_t value) {
  return value == 0 ? "" : absl::StrCat("-", name, value);
}

// What newer families differ in, by which passes and bytes differ too.
std::string FamilyPartNames(const v1::ModelSpec& model) {
  return absl::StrCat(model.joint_head_norms() ? "-joint-head-norms" : "",
                      PartOfFileName(model.norm_placement(), v1::NormPlacement_Name(model.norm_placement()),
                                     "NORM_PLACEMENT_"),
                      Optional("window", model.attention_window()),
                      Optional("windowless", model.windowless_interval()),
                      // Passes go by how many there are, and not by which.
                      Optional("windowless-layers", static_cast<uint32_t>(model.windowless_layers_size())),
                      model.score_cap() > 0 ? "-score-cap" : "", model.logit_cap() > 0 ? "-logit-cap" : "",
                      model.query_key_value_clip() > 0 ? "-clip" : "");
}

// What the first worker has found before an interruption.
std::string SoFarOf(const std::string& cached) { return absl::StrCat(cached, ".so-far"); }

// Measures to a file beside the cached one, which it becomes unless something disturbed it.
absl::StatusOr<MeasuredProfile> MeasureAnew(const MeasureOptions& options, const std::string& cached) {
  const std::string output = absl::StrCat(cached, ".new");
  std::vector<std::string> arguments = ContextArguments(options.context_ranks);
  arguments.push_back(absl::StrCat("--tensor=", absl::StrJoin(options.tensor_degrees, ",")));
  arguments.push_back(absl::StrCat("--expert=", options.expert));
  PENSTOCK_RETURN_IF_ERROR(RunMeasuringWorkers({.worker_binary = options.worker_binary,
                                                .command = "profile",
                                                .arguments = arguments,
                                                .load_arguments = {"--without-links"},
                                                .model = options.model,
                                                .threads = options.threads,
                                                .copies = options.copies,
                                                .gpus = options.gpus,
                                                .seconds = options.seconds,
                                                .so_far = SoFarOf(cached),
                                                .stopped = options.stopped},
                                               output));
  MeasuredProfile measured;
  PENSTOCK_ASSIGN_OR_RETURN(measured.file, ReadProfileFile("measured profile", output));
  measured.disturbance = DisturbanceOf(measured.file.profile().comment());
  std::error_code error;
  if (!measured.disturbance.empty()) {
    std::filesystem::remove(output, error);
    return measured;
  }
  measured.path = cached;
  std::filesystem::rename(output, cached, error);
  if (!error) return measured;
  return absl::UnavailableError(absl::StrCat("writing '", cached, "': ", error.message()));
}

// Names of files have at most 255 bytes, and files beside the profile have longer ones. A name that is too
// long ends with a hash of all of it.
std::string Shortened(const std::string& name) {
  constexpr size_t kMostBytes = 200;
  constexpr size_t kHashBytes = 8;
  if (name.size() <= kMostBytes) return name;
  const std::string hash = absl::BytesToHexString(Sha256(name).substr(0, kHashBytes));
  return absl::StrCat(name.substr(0, kMostBytes - 1 - hash.size()), "-", hash);
}

std::string ContextName(const std::vector<uint32_t>& ranks) {
  std::string name;
  for (const uint32_t contexts : ranks) absl::StrAppend(&name, Optional("context", contexts));
  return name;
}

std::string TensorName(const std::vector<uint32_t>& degrees) {
  std::string name;
  for (const uint32_t degree : degrees) absl::StrAppend(&name, Optional("tensor", degree > 1 ? degree : 0));
  return name;
}

}  // namespace

std::vector<std::string> ContextArguments(const std::vector<uint32_t>& ranks) {
  if (ranks.empty()) return {};
  return {absl::StrCat("--context=", absl::StrJoin(ranks, ","))};
}

std::vector<uint32_t> ContextRanksToMeasure(const v1::ModelSpec& model, uint32_t most) {
  std::vector<uint32_t> ranks;
  if (model.architecture() == v1::ARCHITECTURE_T5) return ranks;
  for (const uint32_t contexts : {2U, 4U})
    if (contexts <= most) ranks.push_back(contexts);
  return ranks;
}

std::string CostProfileName(const MeasureOptions& options) {
  const v1::ModelSpec& model = options.model;
  const std::string stem = absl::StrCat(
      model.architecture() == v1::ARCHITECTURE_T5 ? "t5" : "gpt", "-hidden", model.hidden(), "-heads",
      model.heads(), Optional("inner", model.attention_inner()), Optional("shared", model.key_value_heads()),
      PartNames(model), "-ffn", model.ffn(), FeedForwardName(model.feed_forward()),
      Optional("experts", model.experts()), Optional("of", model.experts_per_token()),
      // Costs of layers without experts go by their width, and not by which they are.
      Optional("dense", model.dense_layers_size() > 0 ? core::DenseWidth(model) : 0),
      Optional("shared-expert", model.shared_expert_ffn()), model.gated_shared_expert() ? "-gated" : "",
      model.router_balance_loss() > 0 ? "-balance-loss" : "", model.router_z_loss() > 0 ? "-z-loss" : "",
      model.head_norms() ? "-head-norms" : "", FamilyPartNames(model), AdapterNames(model),
      Optional("buckets", model.relative_position_buckets()),
      Optional("distance", model.relative_position_max_distance()), "-vocab", model.vocab(), "-length",
      model.max_sequence_length(), "-layers", model.encoder_layers() + model.layers(), "-",
      Slug(v1::DataType_Name(model.dtype())), "-threads", options.threads, "-workers", options.copies,
      TensorName(options.tensor_degrees), ContextName(options.context_ranks),
      Optional("expert", options.expert > 1 ? options.expert : 0), GpuName(options), "-", ProcessorName(),
      "-v", kMeasurement);
  return absl::StrCat(Shortened(stem), ".json");
}

absl::StatusOr<MeasuredProfile> MeasureOrReadProfile(const MeasureOptions& options) {
  const std::string cached = absl::StrCat(options.cache_dir, "/", CostProfileName(options));
  if (options.anew || !std::filesystem::exists(cached)) {
    options.on_start(std::filesystem::exists(SoFarOf(cached)));
    std::error_code error;
    std::filesystem::create_directories(options.cache_dir, error);
    if (error) {
      return absl::PermissionDeniedError(
          absl::StrCat("making folder '", options.cache_dir, "': ", error.message(), "; set PENSTOCK_CACHE"));
    }
    absl::StatusOr<MeasuredProfile> measured = MeasureAnew(options, cached);
    if (!measured.ok()) return AnnotateError(measured.status(), "measuring a cost profile");
    return measured;
  }
  MeasuredProfile measured = {.path = cached};
  PENSTOCK_ASSIGN_OR_RETURN(measured.file, ReadProfileFile("cached profile", cached));
  return measured;
}

}  // namespace penstock::cli
