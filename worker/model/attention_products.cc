#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "worker/model/attention_kernel.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Scores that exist at a time: 64 MiB of float32, or those of one query of every head.
constexpr int64_t kProductScores = int64_t{1} << 24;

// In AccumulationType, with a head of keys for each query head.
class Products {
 public:
  Products(const AttentionOptions& options, const AttentionOperands& piece)
      : options_(options),
        wide_(AccumulationType(piece.query.scalar_type())),
        query_(piece.query.to(wide_)),
        key_(Repeated(piece.key)),
        value_(Repeated(piece.value)) {}

  KernelResult Forward() const {
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> log_sums;
    ForEachBlock([&](int64_t begin, int64_t count) {
      at::Tensor scores = Scores(begin, count);
      const at::Tensor sums = scores.logsumexp(3, /*keepdim=*/true);
      outputs.push_back(scores.sub_(sums).exp_().matmul(value_));
      log_sums.push_back(sums.squeeze(3));
    });
    return {at::cat(outputs, 2), at::cat(log_sums, 2)};
  }

  AttentionOperands Backward(const KernelResult& merged, const at::Tensor& gradient) const {
    std::vector<at::Tensor> query;
    const at::Tensor key = at::zeros_like(key_);
    const at::Tensor value = at::zeros_like(value_);
    ForEachBlock([&](int64_t begin, int64_t count) {
      const auto queries = [&](const at::Tensor& tensor) { return tensor.narrow(2, begin, count); };
      const at::Tensor own = queries(gradient).to(wide_);
      const at::Tensor probabilities =
          Scores(begin, count).sub_(queries(merged.log_sums).unsqueeze(3)).exp_();
      value.add_(probabilities.transpose(2, 3).matmul(own));
      // The derivative of the softmax: p * (dp - sum(p * dp)), the sum being that over the attended values.
      const at::Tensor along = at::mul(own, queries(merged.output)).sum(3, /*keepdim=*/true);
      const at::Tensor scores = own.matmul(value_.transpose(2, 3)).sub_(along).mul_(probabilities);
      scores.mul_(options_.scale);
      query.push_back(scores.matmul(key_));
      key.add_(scores.transpose(2, 3).matmul(queries(query_)));
    });
    return {at::cat(query, 2), Summed(key), Summed(value)};
  }

 private:
  int64_t group() const { return options_.heads / options_.key_value_heads; }
  at::Tensor Repeated(const at::Tensor& heads) const {
    return heads.to(wide_).unsqueeze(2).expand({-1, -1, group(), -1, -1}).flatten(1, 2);
  }
  at::Tensor Summed(const at::Tensor& heads) const {
    return heads.unflatten(1, {options_.key_value_heads, group()}).sum(2);
  }

  // Calls `run` with some queries after the other.
  template <typename Run>
  void ForEachBlock(const Run& run) const {
    const int64_t scores = query_.size(0) * query_.size(1) * key_.size(2);
    const int64_t step = std::max<int64_t>(1, kProductScores / scores);
    for (int64_t begin = 0; begin < query_.size(2); begin += step) {
      run(begin, std::min(step, query_.size(2) - begin));
    }
  }

  at::Tensor Scores(int64_t begin, int64_t count) const {
    at::Tensor scores = query_.narrow(2, begin, count).matmul(key_.transpose(2, 3)).mul_(options_.scale);
    if (!options_.causal) return scores;
    const at::Tensor future =
        at::ones({count, scores.size(3)}, scores.options().dtype(at::kBool)).triu_(begin + 1);
    return scores.masked_fill_(future, -std::numeric_limits<double>::infinity());
  }

  const AttentionOptions& options_;
  const at::ScalarType wide_;
  const at::Tensor query_;
  const at::Tensor key_;
  const at::Tensor value_;
};

}  // namespace

KernelResult ProductForward(const AttentionOptions& options, const AttentionOperands& piece) {
  return Products(options, piece).Forward();
}

AttentionOperands ProductBackward(const AttentionOptions& options, const AttentionOperands& piece,
                                  const KernelResult& merged, const at::Tensor& gradient) {
  return Products(options, piece).Backward(merged, gradient);
}

}  // namespace penstock::worker
