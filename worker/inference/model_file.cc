#include "worker/inference/model_file.h"

#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/profile/profile_file.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ModelSpec model, ReadModelSpec(path));
  absl::StatusOr<ModelConfig> config = ModelFromProto(model);
  if (!config.ok()) return AnnotateError(config.status(), path);
  return config;
}

}  // namespace penstock::worker
