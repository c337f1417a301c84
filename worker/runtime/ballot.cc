#include "worker/runtime/ballot.h"

#include <ATen/ATen.h>

#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// In the order of the elements.
constexpr int64_t kLossNotFinite = 0;
constexpr int64_t kStop = 1;
constexpr int64_t kUnwritten = 2;

}  // namespace

// Filled element by element: on a GPU nothing is copied from the host, which would wait.
absl::StatusOr<at::Tensor> MakeBallot(const Votes& own, const std::vector<at::Tensor>& losses,
                                      at::Device device) {
  return CallTorch("the votes", [&] {
    at::Tensor votes = at::zeros({kVoteCount}, at::TensorOptions(at::kDouble).device(device));
    if (!losses.empty()) {
      votes.narrow(0, kLossNotFinite, 1).copy_(at::isfinite(at::stack(losses)).logical_not().any());
    }
    if (own.stop) votes.narrow(0, kStop, 1).fill_(1);
    if (own.unwritten) votes.narrow(0, kUnwritten, 1).fill_(1);
    return votes;
  });
}

at::Tensor LossNotFinite(const at::Tensor& sum) { return sum.select(0, kLossNotFinite) > 0; }

Votes VotesOf(const at::Tensor& sum) {
  const double* votes = sum.const_data_ptr<double>();
  return {.loss_not_finite = votes[kLossNotFinite] > 0,
          .stop = votes[kStop] > 0,
          .unwritten = votes[kUnwritten] > 0};
}

}  // namespace penstock::worker
