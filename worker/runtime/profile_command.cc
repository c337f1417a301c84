#include "worker/runtime/profile_command.h"

#include <torch/headeronly/version.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/logging/logging.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/version/version.h"
#include "worker/memory/tensor_memory.h"
#include "worker/profile/held_out.h"
#include "worker/profile/measure.h"
#include "worker/profile/profile_file.h"
#include "worker/profile/provenance.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

// Ascending, each once. Whoever profiles by hand may not know the mesh yet.
std::vector<int> TensorDegrees(const ProfileOptions& options, const ModelConfig& config) {
  if (options.tensor.empty()) return DegreesThatDivide(config, {2, 4});
  const std::set<int> degrees(options.tensor.begin(), options.tensor.end());
  return {degrees.begin(), degrees.end()};
}

// Likewise.
std::vector<int> ContextRanks(const ProfileOptions& options) {
  const std::set<int> ranks(options.context.begin(), options.context.end());
  return {ranks.begin(), ranks.end()};
}

// Of the file, with its errors named by it.
absl::StatusOr<ModelConfig> ConfigOf(const v1::ModelSpec& model, const std::string& file) {
  const absl::StatusOr<ModelConfig> config = ModelFromProto(model);
  return config.ok() ? config : absl::StatusOr<ModelConfig>(AnnotateError(config.status(), file));
}

// Of the same model, settings and machine.
absl::StatusOr<KeptTimes> KeptBefore(const ProfileOptions& options, const v1::ModelSpec& model) {
  if (options.so_far.empty()) return KeptTimes();
  const std::string of = absl::StrCat(
      model.ShortDebugString(), "; ", HardwareOf(options.device), ", ", options.device, ", threads ",
      options.threads, options.shared_cores ? ", shared" : "", ", side by side ", options.side_by_side,
      ", tensor ", absl::StrJoin(options.tensor, ","), ", context ", absl::StrJoin(options.context, ","),
      ", expert ", options.expert, ", LibTorch ", TORCH_VERSION, ", ", VersionOf("penstock-worker"));
  absl::StatusOr<KeptTimes> kept = KeptTimes::Open(options.so_far, of);
  if (!kept.ok()) return AnnotateError(kept.status(), "--so-far");
  if (kept->found() > 0)
    LogInfo("going on with a measurement that was interrupted",
            {{"file", options.so_far}, {"figures", kept->found()}});
  return kept;
}

}  // namespace

absl::Status RunProfile(const ProfileOptions& options) {
  // As in training, where they are counted too.
  CountCpuTensors();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, ReadModelSpec(options.model_json));
  PENSTOCK_ASSIGN_OR_RETURN(const ModelConfig config, ConfigOf(model, options.model_json));
  // Better now than after the measurement.
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(CheckWritable(options.out), "--out"));
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredDevice device, OpenMeasuredDevice(options.device));
  PENSTOCK_ASSIGN_OR_RETURN(KeptTimes kept, KeptBefore(options, model));
  const MeasureSettings settings = {.seconds = options.seconds,
                                    .threads = static_cast<int>(options.threads),
                                    .shared_cores = options.shared_cores,
                                    .tensor_degrees = TensorDegrees(options, config),
                                    .context_ranks = ContextRanks(options),
                                    .expert_ranks = options.expert,
                                    .side_by_side = options.side_by_side,
                                    .links = !options.without_links,
                                    .kept = &kept};
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredProfile measured, MeasureProfile(config, settings, device));
  v1::CostProfile profile = ToProto(measured, model);
  profile.set_comment(CommentOf({.device = options.device,
                                 .threads = settings.threads,
                                 .shared_cores = options.shared_cores,
                                 .workers = options.side_by_side,
                                 .contexts = {settings.context_ranks.begin(), settings.context_ranks.end()},
                                 .compiler = kCompiler,
                                 .libtorch = TORCH_VERSION,
                                 .measured_at = absl::Now(),
                                 .spread = measured.spread,
                                 .memory_differences = measured.memory_differences,
                                 .disturbance = measured.disturbance},
                                HardwareOf(options.device)));
  PENSTOCK_RETURN_IF_ERROR(WriteProfileFile(model, profile, options.out));
  return kept.Remove();
}

absl::Status RunProfileCheck(const ProfileOptions& options) {
  CountCpuTensors();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, ReadModelSpec(options.model_json));
  PENSTOCK_ASSIGN_OR_RETURN(const ModelConfig config, ConfigOf(model, options.model_json));
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(CheckWritable(options.out), "--out"));
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredDevice device, OpenMeasuredDevice(options.device));
  const HeldOutSettings settings = {
      .seconds = options.seconds,
      .threads = {.threads = static_cast<int>(options.threads), .shared_cores = options.shared_cores},
      .context_ranks = ContextRanks(options)};
  PENSTOCK_ASSIGN_OR_RETURN(const HeldOutTimes times, MeasureHeldOut(config, settings, device));
  return WriteFileAtomically(options.out, ToJson(times));
}

}  // namespace penstock::worker
