// What users read where a part of a model is meant: in curves, metrics and messages.
#pragma once

#include <string>

#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// "attention", "feed_forward"; of a number that no part has: "part_9".
std::string PartName(v1::ModelPart part);

}  // namespace penstock
