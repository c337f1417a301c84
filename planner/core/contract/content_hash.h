// The content hash of a plan.
#pragma once

#include <string>

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// SHA-256 (32 bytes) of the plan without planning_time_ns and content_hash, serialised deterministically.
// Fields that a newer version of the contract added do not survive an older one, so plans are compared within
// a version.
std::string ContentHash(const v1::Plan& plan);

}  // namespace penstock::core
