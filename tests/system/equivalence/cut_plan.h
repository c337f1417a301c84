// Plans whose micro-batches are cut into parts, as no planner did it: for what workers make of them.
#pragma once

#include <cstdint>

#include "penstock/v1/plan.pb.h"

namespace penstock::testing {

// Cuts the micro-batches into 1 to 5 parts by turns, of different sizes where there are rows enough. Where
// one tensor rank has all tokens, some keep whole backward passes; `turn` says which begin. Parts of these
// begin inside of rows where context ranks divide them and experts have no capacity. From the others'
// the products are taken away that they were to make beside exchanges, as the contract wants it. Times and
// the rest of the plan stay as they are.
void CutIntoParts(v1::Plan& plan, uint32_t turn = 0);

}  // namespace penstock::testing
