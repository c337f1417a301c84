// Which context rank has which token of a micro-batch, token by token (execution.md, section 10): slow, and
// without a formula that could be wrong in the same way as the checker's.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// What a context rank has of a micro-batch, tokens.
struct OwnedTokens {
  uint32_t source = 0;
  uint32_t target = 0;
  uint32_t loss = 0;
  // Keys and values that go from and to it in one layer of a forward pass.
  uint32_t sent = 0;
  uint32_t received = 0;
};

// One for each of the `contexts` context ranks; several only of a GPT.
std::vector<OwnedTokens> OwnersOf(const v1::Batch& batch, const v1::MicroBatch& micro_batch, bool is_t5,
                                  uint32_t contexts);

}  // namespace penstock::core
