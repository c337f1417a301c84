// What experts kept of the parts of a micro-batch (worker/program/parts.h), as if it had been whole: for a
// backward pass that goes through it at once.
//
//   ExpertsBackward experts(part, rows, input, JoinExperts(part.per_token, routed, std::move(of_parts)),
//                           products);
//
// Tokens of a part follow those of the parts before it, and rows are put in the order of the experts anew: on
// the rank that has the tokens, and on those that have the experts, which all join alike.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/model/experts.h"

namespace penstock::worker {

// Whose the tokens of parts are, where a router counts that (routed_samples.h).
struct RoutedInParts {
  // Of the micro-batch.
  int64_t samples = 0;
  // Of each part, the place of its first one in the micro-batch. The last one of a part may be the first one
  // of the next.
  std::vector<int64_t> first_samples;
};

// Of ranks that divide the experts. `per_token`: experts of each token. Tensors of parts are gone one after
// the other, so that no more than one is there twice.
ExpertsMemory JoinExperts(int64_t per_token, const RoutedInParts& routed,
                          std::vector<ExpertsMemory> of_parts);

}  // namespace penstock::worker
