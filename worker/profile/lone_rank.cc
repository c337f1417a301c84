#include "worker/profile/lone_rank.h"

#include <ATen/ATen.h>

#include <numeric>

#include "worker/comm/shard.h"

namespace penstock::worker {

at::Tensor LoneRank::Rows(const at::Tensor& like, int64_t rows) {
  std::vector<int64_t> shape = like.sizes().vec();
  shape[0] = rows;
  const int64_t elements = c10::multiply_integers(shape);
  at::Tensor& numbers = numbers_[like.scalar_type()];
  if (!numbers.defined() || numbers.numel() < elements) {
    // Neither large nor so small that arithmetic with them is slow.
    numbers = at::arange(elements, at::kFloat).sin_().to(like.options());
  }
  return numbers.narrow(0, 0, elements).view(shape);
}

at::Tensor LoneRank::GatherRows(const at::Tensor& own, const ListedRows& rows) {
  return place_.tensors == 1 ? own : Rows(own, rows.size());
}

at::Tensor LoneRank::SumRows(const at::Tensor& partial, const ListedRows& rows) {
  if (place_.tensors == 1) return partial;
  const Shard own = ShardOf(rows, place_.tensor, place_.tensors);
  return partial.narrow(0, own.begin, own.size());
}

at::Tensor LoneRank::ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>&,
                                  const std::vector<int64_t>& received) {
  if (place_.contexts == 1) return rows;
  return Rows(rows, std::accumulate(received.begin(), received.end(), int64_t{0}));
}

std::unique_ptr<PendingRows> LoneRank::StartExpertRows(const at::Tensor& rows, const std::vector<int64_t>&,
                                                       const std::vector<int64_t>& received) {
  if (place_.experts == 1) return std::make_unique<ArrivedRows>(rows);
  return std::make_unique<ArrivedRows>(
      Rows(rows, std::accumulate(received.begin(), received.end(), int64_t{0})));
}

at::Tensor LoneRank::ExchangeExpertCounts(const at::Tensor& counts) {
  const int64_t own = counts.size(0) / place_.experts;
  return counts.narrow(0, place_.expert() * own, own).repeat(place_.experts);
}

}  // namespace penstock::worker
