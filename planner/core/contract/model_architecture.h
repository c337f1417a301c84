// The architecture of a model whose specification has one.
#pragma once

#include "penstock/v1/job.pb.h"
#include "planner/core/model/types.h"

namespace penstock::core {

inline Architecture ArchitectureOf(const v1::ModelSpec& model) {
  return model.architecture() == v1::ARCHITECTURE_T5 ? Architecture::kT5 : Architecture::kGpt;
}

}  // namespace penstock::core
