#include "worker/model/relative_bias.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "worker/torch/data_type.h"
#include "worker/torch/to_device.h"

namespace penstock::worker {
namespace {

at::Tensor PositionsOf(const std::vector<int64_t>& positions, int64_t begin, int64_t length,
                       at::Device device) {
  const auto first = positions.begin() + begin;
  return ToDevice(at::tensor(std::vector<int64_t>(first, first + length), at::kLong), device);
}

// Of distances, of any shape.
at::Tensor BucketsOf(const RelativeBias& bias, const at::Tensor& distances) {
  return bias.bucket_of_distance.index_select(
      0, distances.clamp(-bias.reach, bias.reach).add_(bias.reach).flatten());
}

at::Tensor DiagonalBuckets(const RelativeBias& bias, const AttentionPiece& piece) {
  return BucketsOf(bias, at::arange(1 - piece.query_length, piece.key_length,
                                    at::TensorOptions(at::kLong).device(bias.table.value.device())));
}

at::Tensor ScoreBuckets(const RelativeBias& bias, const AttentionShape& shape, const AttentionPiece& piece) {
  const at::Device device = bias.table.value.device();
  const at::Tensor queries =
      PositionsOf(shape.query_positions, piece.query_begin, piece.query_length, device);
  const at::Tensor keys = PositionsOf(shape.key_positions, piece.key_begin, piece.key_length, device);
  return BucketsOf(bias, keys.unsqueeze(0) - queries.unsqueeze(1));
}

}  // namespace

int64_t RelativeBucket(int64_t distance, bool two_sided, int64_t buckets, int64_t max_distance) {
  int64_t first = 0;
  if (two_sided) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  } else {
    distance = std::max<int64_t>(-distance, 0);
  }
  const int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const auto logarithm = [exact](int64_t value) {
    return std::log(static_cast<double>(value) / static_cast<double>(exact));
  };
  const double wide = logarithm(distance) / logarithm(max_distance) * static_cast<double>(buckets - exact);
  return first + std::min(exact + static_cast<int64_t>(wide), buckets - 1);
}

RelativeBias MakeRelativeBias(const Parameter& table, bool two_sided, int64_t max_distance, int64_t reach) {
  std::vector<int64_t> buckets;
  for (int64_t distance = -reach; distance <= reach; ++distance) {
    buckets.push_back(RelativeBucket(distance, two_sided, table.value.size(0), max_distance));
  }
  return {table, at::tensor(buckets, at::kLong).to(table.value.device()), reach};
}

PieceBias::PieceBias(const RelativeBias& bias, const AttentionShape& shape, const AttentionPiece& piece)
    : bias_(bias),
      queries_(piece.query_length),
      keys_(piece.key_length),
      consecutive_(shape.query_positions.empty() && shape.key_positions.empty()),
      buckets_(consecutive_ ? DiagonalBuckets(bias, piece) : ScoreBuckets(bias, shape, piece)) {}

at::Tensor PieceBias::Of(int64_t first_head, int64_t heads) const {
  const at::Tensor by_head = bias_.table.value.narrow(1, first_head, heads).t().contiguous();
  const at::Tensor values = by_head.to(AccumulationType(by_head.scalar_type())).index_select(1, buckets_);
  if (!consecutive_) return values.view({heads, queries_, keys_});
  return Diagonals(values.unsqueeze(1).expand({-1, queries_, -1}).contiguous());
}

at::Tensor PieceBias::NoGradient(int64_t heads) const {
  const at::TensorOptions options =
      bias_.table.value.options().dtype(AccumulationType(bias_.table.value.scalar_type()));
  if (!consecutive_) return at::zeros({heads, queries_, keys_}, options);
  return Diagonals(at::zeros({heads, queries_, diagonals()}, options));
}

void PieceBias::AddGradient(const at::Tensor& gradient, int64_t first_head) const {
  if (!bias_.table.learns()) return;
  const int64_t heads = gradient.size(0);
  // In float64: a bucket may be the sum of very many scores.
  const at::Tensor summands =
      consecutive_
          ? gradient.as_strided({heads, queries_, diagonals()}, {queries_ * diagonals(), diagonals(), 1}, 0)
                .sum(1, /*keepdim=*/false, at::kDouble)
          : gradient.flatten(1).to(at::kDouble);
  at::Tensor sums = at::zeros({heads, bias_.table.value.size(0)}, summands.options());
  sums.scatter_add_(1, buckets_.unsqueeze(0).expand(summands.sizes()), summands);
  bias_.table.gradient.narrow(1, first_head, heads).add_(sums.t());
}

at::Tensor PieceBias::Diagonals(const at::Tensor& rows) const {
  return rows.as_strided({rows.size(0), queries_, keys_}, {queries_ * diagonals(), diagonals() - 1, 1},
                         queries_ - 1);
}

}  // namespace penstock::worker
