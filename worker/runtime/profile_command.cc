#include "worker/runtime/profile_command.h"

#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/profile/measure.h"
#include "worker/profile/profile_file.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {

absl::Status RunProfile(const ProfileOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, ReadModelSpec(options.model_json));
  const absl::StatusOr<ModelConfig> config = ModelFromProto(model);
  if (!config.ok()) return AnnotateError(config.status(), options.model_json);
  // Better now than after the measurement.
  PENSTOCK_RETURN_IF_ERROR(AnnotateError(CheckWritable(options.out), "--out"));
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredDevice device, OpenMeasuredDevice(options.device));
  PENSTOCK_ASSIGN_OR_RETURN(
      const MeasuredProfile measured,
      MeasureProfile(*config, options.seconds, static_cast<int>(options.threads), device));
  return WriteProfileFile(model, ToProto(measured, model), options.out);
}

}  // namespace penstock::worker
