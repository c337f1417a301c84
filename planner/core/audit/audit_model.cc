#include <cstdint>

#include "absl/strings/str_cat.h"
#include "planner/core/audit/audit_list.h"
#include "planner/core/cost/adapted_profile.h"

namespace penstock::core {
namespace {

// As they are where they are not given.
v1::ModelSpec Completed(v1::ModelSpec model) {
  if (model.attention_inner() == 0) model.set_attention_inner(model.hidden());
  if (model.key_value_heads() == 0) model.set_key_value_heads(model.heads());
  if (model.dense_ffn() == 0) model.set_dense_ffn(model.ffn());
  return model;
}

bool SameAdapters(const v1::ModelSpec& left, const v1::ModelSpec& right) {
  return left.has_adapters() == right.has_adapters() && AreSame(left.adapters(), right.adapters());
}

}  // namespace

std::vector<Violation> AuditModel(const v1::Plan& plan, const v1::ModelSpec& profiled) {
  const v1::ModelSpec model = Completed(plan.model());
  const v1::ModelSpec expected = Completed(profiled);
  AuditList list;
  const auto compare = [&](const char* field, int64_t found, int64_t right) {
    if (found != right)
      list.Add(absl::StrCat("model.", field, " is ", found, ", that of the profile ", right));
  };
  compare("architecture", model.architecture(), expected.architecture());
  compare("layers", model.layers(), expected.layers());
  compare("encoder_layers", model.encoder_layers(), expected.encoder_layers());
  compare("decoder_layers", model.decoder_layers(), expected.decoder_layers());
  compare("hidden", model.hidden(), expected.hidden());
  compare("heads", model.heads(), expected.heads());
  compare("key_value_heads", model.key_value_heads(), expected.key_value_heads());
  compare("attention_inner", model.attention_inner(), expected.attention_inner());
  compare("ffn", model.ffn(), expected.ffn());
  compare("attention_window", model.attention_window(), expected.attention_window());
  compare("windowless_interval", model.windowless_interval(), expected.windowless_interval());
  // Costs go by how many there are.
  compare("windowless_layers' number", model.windowless_layers_size(), expected.windowless_layers_size());
  compare("experts", model.experts(), expected.experts());
  compare("experts_per_token", model.experts_per_token(), expected.experts_per_token());
  compare("shared_expert_ffn", model.shared_expert_ffn(), expected.shared_expert_ffn());
  // Costs go by how many there are.
  compare("dense_layers' number", model.dense_layers_size(), expected.dense_layers_size());
  compare("dense_ffn", model.dense_ffn(), expected.dense_ffn());
  compare("vocab", model.vocab(), expected.vocab());
  compare("dtype", model.dtype(), expected.dtype());
  if (!SameAdapters(model, expected))
    list.Add(absl::StrCat("model.adapters is {", model.adapters().ShortDebugString(),
                          "}, that of the profile {", expected.adapters().ShortDebugString(), "}"));
  return list.Take();
}

}  // namespace penstock::core
