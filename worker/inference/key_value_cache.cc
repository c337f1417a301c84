#include "worker/inference/key_value_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/model/architecture.h"
#include "worker/model/attention_kernel.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// [key-value heads, room, width of a head] each.
struct LayerCache {
  at::Tensor keys;
  at::Tensor values;
};

// [tokens, heads x width] as [heads, tokens, width].
at::Tensor ByHead(const at::Tensor& rows, int64_t heads) {
  return rows.view({rows.size(0), heads, rows.size(1) / heads}).transpose(0, 1);
}

class CachedText : public TextDecoder {
 public:
  CachedText(const LanguageModel& model, int64_t room) : model_(model), room_(room) {
    const ModelConfig& config = model.config();
    const at::TensorOptions options = at::TensorOptions(ToScalarType(config.dtype)).device(model.device());
    for (size_t i = 0; i < model.parts().target.layers.size(); ++i) {
      const auto make = [&] { return at::empty({KeyValueHeads(config), room, HeadWidth(config)}, options); };
      caches_.push_back({make(), make()});
    }
  }

  absl::Status Append(int32_t token) override { return Append(std::vector<int32_t>{token}); }

  // The prompt, or one token: tokens that come together see those before them, and one alone sees all.
  absl::Status Append(const std::vector<int32_t>& tokens) {
    if (length_ + static_cast<int64_t>(tokens.size()) > room_)
      return absl::OutOfRangeError(absl::StrCat("the text has more than ", room_, " tokens"));
    return RunTorch("generating", [&] { Run(tokens); });
  }

 private:
  // Turns of a text that has become long (RotaryRow) are other ones: it is run again from its begin.
  bool BecomesLong(int64_t count) const {
    const RotaryConfig& rotary = model_.config().rotary;
    return rotary.scaling == RotaryScaling::kLongRope && length_ > 0 &&
           length_ <= rotary.original_max_sequence_length &&
           length_ + count > rotary.original_max_sequence_length;
  }

  std::vector<int64_t> RotaryRows(int64_t count) const {
    std::vector<int64_t> rows;
    const ModelConfig& config = model_.config();
    for (int64_t i = length_; i < length_ + count; ++i)
      rows.push_back(RotaryRow(config.rotary, config.max_sequence_length, length_ + count, i));
    return rows;
  }

  void Run(std::vector<int32_t> tokens) {
    const at::NoGradGuard no_gradients;
    const bool again = BecomesLong(static_cast<int64_t>(tokens.size()));
    text_.insert(text_.end(), tokens.begin(), tokens.end());
    if (again) {
      tokens = text_;
      length_ = 0;
    }
    const auto count = static_cast<int64_t>(tokens.size());
    const at::TensorOptions options = at::TensorOptions(at::kLong).device(model_.device());
    const at::Tensor ids =
        at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()), at::kLong).to(options);
    const at::Tensor positions = at::arange(length_, length_ + count, options);
    const at::Tensor rotary_rows = at::tensor(RotaryRows(count), at::kLong).to(options);
    const TokenRows rows = {&SoleRank(), count};
    at::Tensor hidden = EmbeddingForward(*model_.parts().target.embedding, rows, {ids, positions});
    for (size_t i = 0; i < caches_.size(); ++i)
      hidden = RunLayer(model_.parts().target.layers[i], caches_[i], rows, rotary_rows, hidden);
    length_ += count;
    logits_ = model_.Logits(model_.Finish(hidden.narrow(0, count - 1, 1)))[0];
  }

  at::Tensor RunLayer(const LayerPart& layer, const LayerCache& cache, const TokenRows& rows,
                      const at::Tensor& rotary_rows, const at::Tensor& input) const {
    SelfAttentionMemory forgotten;
    const at::Tensor projected =
        ProjectHeads(layer.attention, rows, rotary_rows,
                     PartInput(layer.attention.norms, input, forgotten.norm), forgotten.projection);
    const at::Tensor attended = Attend(layer.attention.options, cache, projected);
    const at::Tensor hidden =
        AddToResidual(layer.attention.norms, InputsForward(layer.attention.output, rows, attended),
                      layer.residual_scale, input, forgotten.output_norm);
    FeedForwardBlockMemory feed_forward;
    return FeedForwardBlockForward(layer.feed_forward, layer.residual_scale, rows, hidden, feed_forward);
  }

  // [tokens, heads x width]
  at::Tensor Attend(const AttentionOptions& options, const LayerCache& cache,
                    const at::Tensor& projected) const {
    const AttentionOperands own = SelfOperands(options, projected);
    const int64_t count = projected.size(0);
    const int64_t all = length_ + count;
    cache.keys.narrow(1, length_, count).copy_(ByHead(own.key, options.key_value_heads));
    cache.values.narrow(1, length_, count).copy_(ByHead(own.value, options.key_value_heads));
    // Keys before these are behind the window of the first token.
    const int64_t begin = options.window > 0 ? std::max<int64_t>(0, length_ - options.window + 1) : 0;
    const auto seen = [&](const at::Tensor& kept) { return kept.narrow(1, begin, all - begin).unsqueeze(0); };
    const KernelResult attended =
        KernelForward(options, RowBegins(),
                      {ByHead(own.query, options.heads).unsqueeze(0), seen(cache.keys), seen(cache.values)},
                      length_ - begin);
    return attended.output[0].transpose(0, 1).reshape({count, -1});
  }

  const LanguageModel& model_;
  const int64_t room_;
  std::vector<LayerCache> caches_;
  std::vector<int32_t> text_;
  // Tokens in the caches.
  int64_t length_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TextDecoder>> StartCachedText(const LanguageModel& model,
                                                             const std::vector<int32_t>& prompt,
                                                             int64_t most) {
  PENSTOCK_ASSIGN_OR_RETURN(auto text, CallTorch("the cache of keys and values", [&] {
                              return std::make_unique<CachedText>(model,
                                                                  static_cast<int64_t>(prompt.size()) + most);
                            }));
  PENSTOCK_RETURN_IF_ERROR(text->Append(prompt));
  return text;
}

}  // namespace penstock::worker
