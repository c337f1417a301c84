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
  if (positions.empty()) return at::arange(length, at::TensorOptions(at::kLong).device(device));
  const auto first = positions.begin() + begin;
  return ToDevice(at::tensor(std::vector<int64_t>(first, first + length), at::kLong), device);
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

at::Tensor PieceBuckets(const RelativeBias& bias, const AttentionShape& shape, const AttentionPiece& piece) {
  const at::Device device = bias.table.value.device();
  const at::Tensor queries =
      PositionsOf(shape.query_positions, piece.query_begin, piece.query_length, device);
  const at::Tensor keys = PositionsOf(shape.key_positions, piece.key_begin, piece.key_length, device);
  const at::Tensor distances = keys.unsqueeze(0) - queries.unsqueeze(1);
  return bias.bucket_of_distance.index_select(
      0, distances.clamp_(-bias.reach, bias.reach).add_(bias.reach).flatten());
}

at::Tensor PieceBias(const RelativeBias& bias, const AttentionPiece& piece, const at::Tensor& buckets,
                     int64_t first_head, int64_t heads) {
  const at::Tensor by_head = bias.table.value.narrow(1, first_head, heads).t().contiguous();
  return by_head.to(AccumulationType(by_head.scalar_type()))
      .index_select(1, buckets)
      .view({heads, piece.query_length, piece.key_length});
}

void AddBiasGradient(const RelativeBias& bias, const at::Tensor& buckets, const at::Tensor& gradient,
                     int64_t first_head) {
  // In float64: a bucket may be the sum of very many scores.
  const at::Tensor flat = gradient.flatten(1).to(at::kDouble);
  at::Tensor sums = at::zeros({flat.size(0), bias.table.value.size(0)}, flat.options());
  sums.scatter_add_(1, buckets.unsqueeze(0).expand(flat.sizes()), flat);
  bias.table.gradient.narrow(1, first_head, flat.size(0)).add_(sums.t());
}

}  // namespace penstock::worker
