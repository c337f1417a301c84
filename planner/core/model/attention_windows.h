// What sliding windows take off the squares of lengths that attention's costs go by.
#pragma once

#include <cstdint>

namespace penstock::core {

// A token of a layer with a window attends to itself and the `window` - 1 tokens before it.
struct AttentionWindows {
  // Tokens; 0: no layer has one.
  int64_t window = 0;
  // How many layers of the model have one, of how many.
  int64_t windowed_layers = 0;
  int64_t layers = 1;

  // Of a row of n tokens, causal attention without a window costs what n^2 does. With one of w < n tokens it
  // costs 2wn - w^2, which is (n - w)^2 less. This is what is less in the mean over all layers, of which a
  // profile's layer is one; rounded down, so that sums of it stay exact (execution.md, section 1).
  double LessSquare(int64_t length) const {
    if (window == 0 || length <= window) return 0;
    const int64_t beyond = length - window;
    return static_cast<double>(beyond * beyond / layers * windowed_layers +
                               beyond * beyond % layers * windowed_layers / layers);
  }
};

}  // namespace penstock::core
