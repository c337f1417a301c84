#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "worker/model/attention_kernel.h"
#include "worker/model/cap.h"
#include "worker/model/score_chunk.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Scores that exist at a time on a GPU: 64 MiB of float32.
constexpr int64_t kProductScoresOnGpu = int64_t{1} << 24;

// Some neighbours of a piece, some of their queries, and the keys that these see.
struct ScoreBlock {
  int64_t first = 0;
  int64_t count = 0;
  int64_t query_begin = 0;
  int64_t queries = 0;
  int64_t key_begin = 0;
  int64_t keys = 0;
};

// In AccumulationType. Query heads that share a key are rows of one product.
class Products {
 public:
  Products(const AttentionOptions& options, const AttentionOperands& piece, int64_t lead)
      : options_(options),
        lead_(lead),
        type_(piece.query.scalar_type()),
        wide_(AccumulationType(type_)),
        query_(piece.query.to(wide_)),
        key_(piece.key.to(wide_)),
        value_(piece.value.to(wide_)) {}

  KernelResult Forward() const {
    const int64_t count = query_.size(0);
    const int64_t queries = query_.size(2);
    const at::Tensor output =
        at::empty({count, queries, options_.heads, query_.size(3)}, query_.options().dtype(type_))
            .transpose(1, 2);
    const at::Tensor log_sums = at::empty({count, options_.heads, queries}, query_.options());
    ForEachBlock([&](const ScoreBlock& block) {
      at::Tensor scores = Scores(block, nullptr);
      const at::Tensor sums = scores.logsumexp(3, /*keepdim=*/true);
      QueriesOf(block, output).copy_(ByHead(block, scores.sub_(sums).exp_().matmul(KeysOf(block, value_))));
      QueriesOf(block, log_sums).copy_(ByHead(block, sums).squeeze(3));
    });
    return {output, log_sums};
  }

  AttentionOperands Backward(const KernelResult& merged, const at::Tensor& gradient) const {
    const AttentionOperands result = {at::zeros_like(query_), at::zeros_like(key_), at::zeros_like(value_)};
    ForEachBlock([&](const ScoreBlock& block) {
      const at::Tensor own = Grouped(block, gradient);
      at::Tensor slope;
      const at::Tensor sums = Grouped(block, merged.log_sums.unsqueeze(3));
      const at::Tensor probabilities = Scores(block, &slope).sub_(sums).exp_();
      KeysOf(block, result.value).add_(probabilities.transpose(2, 3).matmul(own));
      // The derivative of the softmax: p * (dp - sum(p * dp)). The sum is that over the attended values too,
      // but where all keys are here it is made of the same numbers: what cancels, cancels to the last digit.
      const at::Tensor scores = own.matmul(KeysOf(block, value_).transpose(2, 3));
      const at::Tensor along =
          (merged.whole ? at::mul(scores, probabilities) : at::mul(own, Grouped(block, merged.output)))
              .sum(3, /*keepdim=*/true);
      scores.sub_(along).mul_(probabilities);
      if (slope.defined()) scores.mul_(slope);
      scores.mul_(options_.scale);
      QueriesOf(block, result.query).copy_(ByHead(block, scores.matmul(KeysOf(block, key_))));
      KeysOf(block, result.key).add_(scores.transpose(2, 3).matmul(Grouped(block, query_)));
    });
    return result;
  }

 private:
  int64_t group() const { return options_.heads / options_.key_value_heads; }

  // Of [count, heads, queries, ...], and of [count, key-value heads, keys, width].
  static at::Tensor QueriesOf(const ScoreBlock& block, const at::Tensor& tensor) {
    return tensor.narrow(0, block.first, block.count).narrow(2, block.query_begin, block.queries);
  }
  static at::Tensor KeysOf(const ScoreBlock& block, const at::Tensor& tensor) {
    return tensor.narrow(0, block.first, block.count).narrow(2, block.key_begin, block.keys);
  }
  // [count, heads, queries, n] of a block as [count, key-value heads, group * queries, n], and back.
  at::Tensor Grouped(const ScoreBlock& block, const at::Tensor& heads) const {
    return QueriesOf(block, heads)
        .to(wide_)
        .unflatten(1, {options_.key_value_heads, group()})
        .reshape({block.count, options_.key_value_heads, group() * block.queries, heads.size(3)});
  }
  at::Tensor ByHead(const ScoreBlock& block, const at::Tensor& grouped) const {
    return grouped.view({block.count, options_.heads, block.queries, grouped.size(3)});
  }

  // Calls `run` with some queries of some neighbours after the other.
  template <typename Run>
  void ForEachBlock(const Run& run) const {
    const int64_t scores = query_.is_cpu() ? kScoresPerChunkOnCpu : kProductScoresOnGpu;
    const int64_t queries = query_.size(2);
    const int64_t seen = KeysSeen(BandQueries());
    const int64_t step =
        std::clamp<int64_t>(scores / (options_.heads * seen), 1, std::min(BandQueries(), queries));
    const int64_t most = std::max<int64_t>(1, scores / (options_.heads * step * KeysSeen(step)));
    for (int64_t first = 0; first < query_.size(0); first += most) {
      for (int64_t begin = 0; begin < queries; begin += step) {
        run(BlockAt(first, std::min(most, query_.size(0) - first), begin, std::min(step, queries - begin)));
      }
    }
  }

  // Queries at a time of which most see most keys that any of them sees.
  int64_t BandQueries() const {
    constexpr int64_t kFewest = 64;
    const bool band = options_.causal || options_.window > 0;
    return band ? std::max(kFewest, options_.window / 2) : query_.size(2);
  }
  int64_t KeysSeen(int64_t queries) const {
    return options_.window > 0 ? std::min(key_.size(2), queries + options_.window - 1) : key_.size(2);
  }

  ScoreBlock BlockAt(int64_t first, int64_t count, int64_t query_begin, int64_t queries) const {
    const int64_t position = query_begin + lead_;
    const int64_t key_begin = options_.window > 0 ? std::max<int64_t>(0, position - options_.window + 1) : 0;
    const int64_t key_end = options_.causal ? std::min(key_.size(2), position + queries) : key_.size(2);
    return {first, count, query_begin, queries, key_begin, key_end - key_begin};
  }

  // [count, key-value heads, group * queries, keys], with -inf where a query does not see a key. `slope`,
  // unless null: what the cap makes of a small change of a score.
  at::Tensor Scores(const ScoreBlock& block, at::Tensor* slope) const {
    at::Tensor scores =
        Grouped(block, query_).matmul(KeysOf(block, key_).transpose(2, 3)).mul_(options_.scale);
    CapInPlace(options_.score_cap, scores, slope);
    const at::Tensor hidden = Hidden(block);
    if (hidden.defined()) {
      scores.view({-1, group(), block.queries, block.keys})
          .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
    }
    return scores;
  }

  // bool [queries, keys]; undefined where all is seen.
  at::Tensor Hidden(const ScoreBlock& block) const {
    // Of the first query behind the first key.
    const int64_t distance = block.query_begin + lead_ - block.key_begin;
    const auto ones = [&] {
      return at::ones({block.queries, block.keys}, query_.options().dtype(at::kBool));
    };
    at::Tensor hidden;
    if (options_.causal && block.keys - 1 > distance) hidden = ones().triu_(distance + 1);
    if (options_.window > 0 && distance + block.queries > options_.window) {
      const at::Tensor before = ones().tril_(distance - options_.window);
      hidden = hidden.defined() ? hidden.logical_or_(before) : before;
    }
    return hidden;
  }

  const AttentionOptions& options_;
  const int64_t lead_;
  const at::ScalarType type_;
  const at::ScalarType wide_;
  const at::Tensor query_;
  const at::Tensor key_;
  const at::Tensor value_;
};

}  // namespace

KernelResult ProductForward(const AttentionOptions& options, const AttentionOperands& piece, int64_t lead) {
  return Products(options, piece, lead).Forward();
}

AttentionOperands ProductBackward(const AttentionOptions& options, const AttentionOperands& piece,
                                  const KernelResult& merged, const at::Tensor& gradient, int64_t lead) {
  return Products(options, piece, lead).Backward(merged, gradient);
}

}  // namespace penstock::worker
