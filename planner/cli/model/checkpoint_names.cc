#include "planner/cli/model/checkpoint_names.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/cli/model/hugging_face_config.h"
#include "planner/core/contract/model_experts.h"

namespace penstock::cli {
namespace {

// What the norms of a layer are called; null: it has none there.
struct NormNames {
  const char* before_attention = "input_layernorm";
  const char* behind_attention = nullptr;
  const char* before_feed_forward = "post_attention_layernorm";
  const char* behind_feed_forward = nullptr;
};

NormNames NormNamesOf(const v1::ModelSpec& model) {
  if (model.norm_placement() == v1::NORM_PLACEMENT_AFTER) {
    return {.before_attention = nullptr,
            .behind_attention = "post_attention_layernorm",
            .before_feed_forward = nullptr,
            .behind_feed_forward = "post_feedforward_layernorm"};
  }
  if (model.norm_placement() != v1::NORM_PLACEMENT_BOTH) return {};
  return {.behind_attention = "post_attention_layernorm",
          .before_feed_forward = "pre_feedforward_layernorm",
          .behind_feed_forward = "post_feedforward_layernorm"};
}

// Adds the names of one family after the other part of the model.
class NameList {
 public:
  explicit NameList(const v1::ModelSpec& model)
      : model_(model),
        hidden_(model.hidden()),
        ffn_(model.ffn()),
        inner_(model.attention_inner() > 0 ? model.attention_inner() : model.hidden()),
        head_(inner_ / model.heads()),
        key_value_(inner_ / model.heads() *
                   (model.key_value_heads() > 0 ? model.key_value_heads() : model.heads())) {}

  void AddGpt2();
  // And those like it: all decoders but GPT-2.
  void AddLlama(const std::string& family);
  void AddT5();
  std::vector<TensorNames> Take() { return std::move(names_); }

 private:
  using Pieces = std::vector<TensorPiece>;

  void AddVector(const std::string& name, const std::string& theirs, int64_t rows) {
    names_.push_back({name, 0, {TensorPiece{theirs, rows}}});
  }
  void AddMatrix(const std::string& name, const std::string& theirs, int64_t rows, int64_t columns) {
    names_.push_back({name, columns, {TensorPiece{theirs, rows}}});
  }
  void AddHead(const std::string& theirs) {
    if (!model_.tied_head()) AddMatrix("head.weight", theirs, model_.vocab(), hidden_);
  }

  // A linear layer of GPT-2 with its bias.
  void AddConv(const std::string& name, const std::string& theirs, int64_t rows, int64_t columns) {
    names_.push_back(
        {name + ".weight", columns, {TensorPiece{theirs + ".weight", rows, /*transposed=*/true}}});
    AddVector(name + ".bias", theirs + ".bias", rows);
  }
  void AddLayerNorm(const std::string& name, const std::string& theirs) {
    AddVector(name + ".weight", theirs + ".weight", hidden_);
    AddVector(name + ".bias", theirs + ".bias", hidden_);
  }

  void AddNorm(const std::string& name, const std::string& block, const char* theirs) {
    if (theirs == nullptr) return;
    AddVector(name + ".weight", absl::StrCat(block, theirs, ".weight"), hidden_);
    // Unspecified is LAYER, as of every GPT.
    if (model_.norm() != v1::NORM_RMS)
      AddVector(name + ".bias", absl::StrCat(block, theirs, ".bias"), hidden_);
  }

  // Several linear layers, by the parts of their names, as one.
  void AddLinear(const std::string& name, const Pieces& layers, int64_t columns, bool bias) {
    for (const char* part : {".weight", ".bias"}) {
      const bool is_bias = std::string(part) == ".bias";
      if (is_bias && !bias) continue;
      TensorNames names = {name + part, is_bias ? 0 : columns, {}};
      for (const TensorPiece& layer : layers) names.pieces.push_back({layer.name + part, layer.rows});
      names_.push_back(std::move(names));
    }
  }

  // One of the two halves of a linear layer that makes both.
  void AddHalf(const std::string& name, const std::string& theirs, int64_t half) {
    names_.push_back({name,
                      hidden_,
                      {TensorPiece{.name = theirs,
                                   .rows = ffn_,
                                   .transposed = false,
                                   .first_row = half * ffn_,
                                   .whole_rows = 2 * ffn_}}});
  }

  void AddExperts(const std::string& family, const std::string& layer, const std::string& block);
  void AddFeedForward(const std::string& family, const std::string& layer, const std::string& block);
  void AddT5Stack(const std::string& stack, uint32_t layers, bool cross);
  void AddT5Layer(const std::string& prefix, const std::string& block, bool cross);

  const v1::ModelSpec& model_;
  const int64_t hidden_;
  const int64_t ffn_;
  const int64_t inner_;
  const int64_t head_;
  const int64_t key_value_;
  std::vector<TensorNames> names_;
};

void NameList::AddGpt2() {
  AddMatrix("embedding.token.weight", "transformer.wte.weight", model_.vocab(), hidden_);
  AddMatrix("embedding.position.weight", "transformer.wpe.weight", model_.max_sequence_length(), hidden_);
  for (uint32_t i = 0; i < model_.layers(); ++i) {
    const std::string layer = absl::StrCat("layers.", i, ".");
    const std::string block = absl::StrCat("transformer.h.", i, ".");
    AddLayerNorm(layer + "attention_norm", block + "ln_1");
    AddConv(layer + "attention.qkv", block + "attn.c_attn", 3 * inner_, hidden_);
    AddConv(layer + "attention.output", block + "attn.c_proj", hidden_, inner_);
    AddLayerNorm(layer + "ffn_norm", block + "ln_2");
    AddConv(layer + "ffn.up", block + "mlp.c_fc", ffn_, hidden_);
    AddConv(layer + "ffn.down", block + "mlp.c_proj", hidden_, ffn_);
  }
  AddLayerNorm("final_norm", "transformer.ln_f");
  AddHead("lm_head.weight");
}

void NameList::AddExperts(const std::string& family, const std::string& layer, const std::string& block) {
  const bool mixtral = family == kMixtral;
  const std::string theirs = block + (mixtral ? "block_sparse_moe." : "mlp.");
  AddMatrix(layer + "ffn.router.weight", theirs + "gate.weight", model_.experts(), hidden_);
  for (uint32_t i = 0; i < model_.experts(); ++i) {
    const std::string ours = absl::StrCat(layer, "ffn.experts.", i, ".");
    const std::string expert = absl::StrCat(theirs, "experts.", i, ".");
    AddMatrix(ours + "up.weight", expert + (mixtral ? "w3.weight" : "up_proj.weight"), ffn_, hidden_);
    AddMatrix(ours + "gate.weight", expert + (mixtral ? "w1.weight" : "gate_proj.weight"), ffn_, hidden_);
    AddMatrix(ours + "down.weight", expert + (mixtral ? "w2.weight" : "down_proj.weight"), hidden_, ffn_);
  }
  if (model_.shared_expert_ffn() == 0) return;
  const int64_t shared = model_.shared_expert_ffn();
  AddMatrix(layer + "ffn.shared.up.weight", theirs + "shared_expert.up_proj.weight", shared, hidden_);
  AddMatrix(layer + "ffn.shared.gate.weight", theirs + "shared_expert.gate_proj.weight", shared, hidden_);
  AddMatrix(layer + "ffn.shared.down.weight", theirs + "shared_expert.down_proj.weight", hidden_, shared);
  if (!model_.gated_shared_expert()) return;
  AddMatrix(layer + "ffn.shared_gate.weight", theirs + "shared_expert_gate.weight", 1, hidden_);
}

void NameList::AddFeedForward(const std::string& family, const std::string& layer, const std::string& block) {
  // Of a layer without experts among others.
  const int64_t ffn = core::DenseWidth(model_);
  const bool biases = model_.feed_forward_biases() != v1::BIASES_NONE;
  if (family == kStarcoder2) {
    AddLinear(layer + "ffn.up", {{block + "mlp.c_fc", ffn_}}, hidden_, biases);
    return AddLinear(layer + "ffn.down", {{block + "mlp.c_proj", hidden_}}, ffn_, biases);
  }
  if (family == kPhi3) {
    AddHalf(layer + "ffn.gate.weight", block + "mlp.gate_up_proj.weight", 0);
    AddHalf(layer + "ffn.up.weight", block + "mlp.gate_up_proj.weight", 1);
  } else {
    AddLinear(layer + "ffn.up", {{block + "mlp.up_proj", ffn}}, hidden_, biases);
    AddLinear(layer + "ffn.gate", {{block + "mlp.gate_proj", ffn}}, hidden_, biases);
  }
  AddLinear(layer + "ffn.down", {{block + "mlp.down_proj", hidden_}}, ffn, biases);
}

void NameList::AddLlama(const std::string& family) {
  AddMatrix("embedding.token.weight", "model.embed_tokens.weight", model_.vocab(), hidden_);
  // Unspecified is all, as of every GPT.
  const bool attention = model_.attention_biases() != v1::BIASES_NONE;
  const bool output = attention && model_.attention_biases() != v1::BIASES_QUERY_KEY_VALUE;
  const bool fused = family == kPhi3;
  const std::set<uint32_t> dense(model_.dense_layers().begin(), model_.dense_layers().end());
  for (uint32_t i = 0; i < model_.layers(); ++i) {
    const std::string layer = absl::StrCat("layers.", i, ".");
    const std::string block = absl::StrCat("model.layers.", i, ".");
    const NormNames norms = NormNamesOf(model_);
    AddNorm(layer + "attention_norm", block, norms.before_attention);
    AddLinear(layer + "attention.qkv",
              fused ? Pieces{{block + "self_attn.qkv_proj", inner_ + 2 * key_value_}}
                    : Pieces{{block + "self_attn.q_proj", inner_},
                             {block + "self_attn.k_proj", key_value_},
                             {block + "self_attn.v_proj", key_value_}},
              hidden_, attention);
    if (model_.head_norms()) {
      AddVector(layer + "attention.query_norm.weight", block + "self_attn.q_norm.weight", head_);
      AddVector(layer + "attention.key_norm.weight", block + "self_attn.k_norm.weight", head_);
    }
    if (model_.joint_head_norms()) {
      AddVector(layer + "attention.query_norm.weight", block + "self_attn.q_norm.weight", inner_);
      AddVector(layer + "attention.key_norm.weight", block + "self_attn.k_norm.weight", key_value_);
    }
    AddLinear(layer + "attention.output", {{block + "self_attn.o_proj", hidden_}}, inner_, output);
    AddNorm(layer + "attention_output_norm", block, norms.behind_attention);
    AddNorm(layer + "ffn_norm", block, norms.before_feed_forward);
    AddNorm(layer + "ffn_output_norm", block, norms.behind_feed_forward);
    if (model_.experts() > 0 && !dense.contains(i + 1)) {
      AddExperts(family, layer, block);
      continue;
    }
    AddFeedForward(family, layer, block);
  }
  AddNorm("final_norm", "model.", "norm");
  AddHead("lm_head.weight");
}

void NameList::AddT5Layer(const std::string& prefix, const std::string& block, bool cross) {
  AddVector(prefix + "attention_norm.weight", block + "0.layer_norm.weight", hidden_);
  const std::string self = block + "0.SelfAttention.";
  AddLinear(prefix + "attention.qkv", {{self + "q", inner_}, {self + "k", inner_}, {self + "v", inner_}},
            hidden_, /*bias=*/false);
  AddLinear(prefix + "attention.output", {{self + "o", hidden_}}, inner_, /*bias=*/false);
  if (cross) {
    const std::string other = block + "1.EncDecAttention.";
    AddVector(prefix + "cross_norm.weight", block + "1.layer_norm.weight", hidden_);
    AddLinear(prefix + "cross.query", {{other + "q", inner_}}, hidden_, /*bias=*/false);
    AddLinear(prefix + "cross.key_value", {{other + "k", inner_}, {other + "v", inner_}}, hidden_,
              /*bias=*/false);
    AddLinear(prefix + "cross.output", {{other + "o", hidden_}}, inner_, /*bias=*/false);
  }
  const std::string last = absl::StrCat(block, cross ? 2 : 1, ".");
  AddVector(prefix + "ffn_norm.weight", last + "layer_norm.weight", hidden_);
  const std::string dense = last + "DenseReluDense.";
  const bool gated = model_.feed_forward() == v1::FEED_FORWARD_GATED_GELU ||
                     model_.feed_forward() == v1::FEED_FORWARD_GATED_SILU;
  AddLinear(prefix + "ffn.up", {{dense + (gated ? "wi_1" : "wi"), ffn_}}, hidden_, /*bias=*/false);
  if (gated) AddLinear(prefix + "ffn.gate", {{dense + "wi_0", ffn_}}, hidden_, /*bias=*/false);
  AddLinear(prefix + "ffn.down", {{dense + "wo", hidden_}}, ffn_, /*bias=*/false);
}

void NameList::AddT5Stack(const std::string& stack, uint32_t layers, bool cross) {
  const int64_t buckets = model_.relative_position_buckets() > 0 ? model_.relative_position_buckets() : 32;
  AddMatrix(stack + ".relative_bias.weight",
            stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight", buckets, model_.heads());
  for (uint32_t i = 0; i < layers; ++i) {
    AddT5Layer(absl::StrCat(stack, ".", i, "."), absl::StrCat(stack, ".block.", i, ".layer."), cross);
  }
}

void NameList::AddT5() {
  AddMatrix("embedding.token.weight", "shared.weight", model_.vocab(), hidden_);
  AddT5Stack("encoder", model_.encoder_layers(), /*cross=*/false);
  AddVector("encoder.final_norm.weight", "encoder.final_layer_norm.weight", hidden_);
  AddT5Stack("decoder", model_.decoder_layers(), /*cross=*/true);
  AddVector("final_norm.weight", "decoder.final_layer_norm.weight", hidden_);
  AddHead("lm_head.weight");
}

}  // namespace

int64_t TensorNames::rows() const {
  int64_t sum = 0;
  for (const TensorPiece& piece : pieces) sum += piece.rows;
  return sum;
}

std::vector<int64_t> TensorNames::shape() const {
  return columns == 0 ? std::vector<int64_t>{rows()} : std::vector<int64_t>{rows(), columns};
}

std::vector<TensorNames> CheckpointNames(const v1::ModelSpec& model, const std::string& family) {
  NameList names(model);
  if (family == kT5 || family == kMt5) {
    names.AddT5();
  } else if (family != kGpt2) {
    names.AddLlama(family);
  } else {
    names.AddGpt2();
  }
  return names.Take();
}

}  // namespace penstock::cli
