#include "planner/core/schedule/noisy_passes.h"

#include <algorithm>
#include <cmath>

namespace penstock::core {

const PassTable& NoisyPasses::Draw(const PassTable& table, absl::Span<const Pass> order,
                                   const PassNoise& noise, int replica, int draw) {
  const int32_t last = table.rows.empty() ? 0 : *std::ranges::max_element(table.rows);
  const size_t size = static_cast<size_t>(last) + table.stages;
  for (std::vector<int64_t>* times : {&forward_ns_, &backward_ns_, &weight_ns_})
    if (times->size() < size) times->resize(size);
  streams_.clear();
  for (int stage = 0; stage < table.stages; ++stage) streams_.push_back(noise.StreamOf(draw, replica, stage));
  for (const Pass& pass : order) {
    const int32_t at = table.rows[pass.micro_batch] + pass.stage;
    const double factor = noise.Factor(streams_[pass.stage], pass.micro_batch, pass.kind);
    const auto noisy = [factor](int64_t ns) {
      return static_cast<int64_t>(static_cast<double>(ns) * factor + 0.5);
    };
    switch (pass.kind) {
      case PassKind::kForward:
        forward_ns_[at] = noisy(table.forward_ns[at]);
        break;
      case PassKind::kBackward:
        backward_ns_[at] = noisy(table.backward_ns[at]);
        // Whoever schedules anew may split it.
        weight_ns_[at] = noisy(table.weight_ns[at]);
        break;
      case PassKind::kBackwardInput:
        // The whole of a split one is the sum of its parts, of which the second comes later.
        weight_ns_[at] = table.weight_ns[at];
        backward_ns_[at] = noisy(table.backward_ns[at] - table.weight_ns[at]) + weight_ns_[at];
        break;
      case PassKind::kBackwardWeight:
        backward_ns_[at] += noisy(table.weight_ns[at]) - weight_ns_[at];
        weight_ns_[at] = noisy(table.weight_ns[at]);
        break;
    }
  }
  noisy_ = table;
  noisy_.forward_ns = forward_ns_.data();
  noisy_.backward_ns = backward_ns_.data();
  noisy_.weight_ns = weight_ns_.data();
  return noisy_;
}

}  // namespace penstock::core
