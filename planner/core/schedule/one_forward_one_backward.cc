#include "planner/core/schedule/one_forward_one_backward.h"

#include <algorithm>

namespace penstock::core {

void MakeOneForwardOneBackward(int stages, int micro_batches, PassOrder* order) {
  order->forwards_before.resize(static_cast<size_t>(stages) * micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    for (int j = 0; j < micro_batches; ++j) {
      order->forwards_before[static_cast<size_t>(stage) * micro_batches + j] =
          std::min(micro_batches, j + stages - stage);
    }
  }
}

}  // namespace penstock::core
