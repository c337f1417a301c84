#include "worker/optimizer/flat_squares.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "worker/optimizer/adamw_kernel.h"

namespace penstock::worker {
namespace {

// Elements of one sum. Which numbers are summed together depends on their places alone, never on who sums.
constexpr int64_t kBlockOfSum = 1 << 14;

template <typename Float>
double BlockedSum(const at::Tensor& flat) {
  const auto* const values = flat.const_data_ptr<Float>();
  const int64_t count = flat.numel();
  std::vector<double> blocks(static_cast<size_t>((count + kBlockOfSum - 1) / kBlockOfSum));
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * kBlockOfSum;
      blocks[static_cast<size_t>(i)] = SumOfSquares(values + first, std::min(kBlockOfSum, count - first));
    }
  });
  return std::accumulate(blocks.begin(), blocks.end(), 0.0);
}

}  // namespace

at::Tensor FlatSumOfSquares(const at::Tensor& flat) {
  if (!flat.is_cpu()) {
    return at::linalg_vector_norm(flat, 2, std::nullopt, /*keepdim=*/false, at::kDouble).square();
  }
  const double sum = flat.scalar_type() == at::kDouble ? BlockedSum<double>(flat) : BlockedSum<float>(flat);
  return at::scalar_tensor(sum, at::kDouble);
}

}  // namespace penstock::worker
