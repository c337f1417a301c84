// What a tensor rank has beyond its 1/T of each decoder layer where key-value heads are fewer than tensor
// ranks: neighbours have the same head, each a whole one (execution.md, section 8).
#pragma once

#include "planner/core/model/types.h"

namespace penstock::core {

struct RepeatedHeads {
  // Of a layer's weights of keys and values.
  double parameter_bytes = 0;
  // Of the keys and values of a token.
  double token_bytes = 0;
};

// All 0 where tensor ranks divide the key-value heads.
inline RepeatedHeads RepeatedHeadsOf(const Job& job, int tensors) {
  const int64_t heads = (job.key_value_heads + tensors - 1) / tensors;
  const double extra = static_cast<double>(heads) - static_cast<double>(job.key_value_heads) / tensors;
  const double token_bytes = 2 * extra * static_cast<double>(job.head_width * job.bytes_per_element);
  return {token_bytes * static_cast<double>(job.hidden), token_bytes};
}

}  // namespace penstock::core
