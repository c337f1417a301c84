#include "worker/runtime/profile_command.h"

#include <set>
#include <vector>

#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/profile/measure.h"
#include "worker/profile/profile_file.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

// Ascending, each once. Whoever profiles by hand may not know the mesh yet.
std::vector<int> TensorDegrees(const ProfileOptions& options, const ModelConfig& config) {
  if (options.tensor.empty()) return DegreesThatDivide(config, {2, 4});
  const std::set<int> degrees(options.tensor.begin(), options.tensor.end());
  return {degrees.begin(), degrees.end()};
}

}  // namespace

absl::Status RunProfile(const ProfileOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, ReadModelSpec(options.model_json));
  const absl::StatusOr<ModelConfig> config = ModelFromProto(model);
  if (!config.ok()) return AnnotateError(config.status(), options.model_json);
  // Better now than after the measurement.
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(CheckWritable(options.out), "--out"));
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredDevice device, OpenMeasuredDevice(options.device));
  const MeasureSettings settings = {.seconds = options.seconds,
                                    .threads = static_cast<int>(options.threads),
                                    .shared_cores = options.shared_cores,
                                    .tensor_degrees = TensorDegrees(options, *config),
                                    .expert_ranks = options.expert};
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredProfile measured, MeasureProfile(*config, settings, device));
  return WriteProfileFile(model, ToProto(measured, model), options.out);
}

}  // namespace penstock::worker
