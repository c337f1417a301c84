// Changes to a plan that leave it well-formed; what then no longer agrees plan_sealing.h mends.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// The instruction with this key; fails the test if there is none.
v1::Instruction& Find(v1::Plan& plan, int rank, v1::Op op, uint32_t micro_batch, uint32_t part = 0,
                      int stage = -1);

// Puts the instructions of the rank in the order of `ids` (old ids; those left out are removed) and renumbers
// all references. Deps on removed instructions vanish.
void Rearrange(v1::Plan& plan, int rank, const std::vector<uint32_t>& ids);
void Remove(v1::Plan& plan, int rank, uint32_t id);
// Moves an instruction so that it comes just before another one.
void MoveBefore(v1::Plan& plan, int rank, uint32_t id, uint32_t before);

}  // namespace penstock::core
