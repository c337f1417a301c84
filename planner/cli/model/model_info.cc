#include "planner/cli/model/model_info.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/checkpoint_names.h"
#include "planner/cli/model/hugging_face_config.h"
#include "planner/cli/model/linear_layer_names.h"
#include "planner/cli/model/merge_adapters.h"
#include "planner/cli/model/model_folder.h"
#include "planner/core/contract/model_experts.h"

namespace penstock::cli {
namespace {

uint64_t CountParameters(const v1::ModelSpec& model) {
  uint64_t count = 0;
  for (const TensorNames& names : CheckpointNames(model, FamilyOf(model))) {
    count += static_cast<uint64_t>(names.rows() * std::max<int64_t>(1, names.columns));
  }
  return count;
}

// "GATED_SILU" of "FEED_FORWARD_GATED_SILU", in lower case.
std::string ShortName(absl::string_view name, absl::string_view prefix) {
  return absl::AsciiStrToLower(std::string(absl::StripPrefix(name, prefix)));
}

std::string Layers(const v1::ModelSpec& model) {
  if (model.architecture() != v1::ARCHITECTURE_T5) return absl::StrCat(model.layers());
  return absl::StrCat(model.encoder_layers(), " encoder + ", model.decoder_layers(), " decoder");
}

std::string Heads(const v1::ModelSpec& model) {
  const uint32_t inner = model.attention_inner() > 0 ? model.attention_inner() : model.hidden();
  const uint32_t shared = model.key_value_heads() > 0 ? model.key_value_heads() : model.heads();
  return absl::StrCat(model.heads(), " of width ", inner / model.heads(), ", ", shared,
                      " of keys and values");
}

std::string FeedForwardText(const v1::ModelSpec& model) {
  if (model.experts() == 0) return absl::StrCat(model.ffn());
  std::string text =
      absl::StrCat(model.experts(), " experts of ", model.ffn(), ", ", model.experts_per_token(), " a token");
  if (model.shared_expert_ffn() > 0)
    absl::StrAppend(&text, ", and one of ", model.shared_expert_ffn(), " that all share");
  if (model.dense_layers_size() > 0)
    absl::StrAppend(&text, "; ", core::DenseWidth(model), " in layers ",
                    absl::StrJoin(model.dense_layers(), ", "), ", which have none");
  return text;
}

std::string PositionText(const v1::ModelSpec& model) {
  if (model.architecture() == v1::ARCHITECTURE_T5) return "relative bias";
  if (model.position() != v1::POSITION_ROTARY) return "learned";
  const v1::RotaryPosition& rotary = model.rotary();
  std::string text = absl::StrCat("rotary, theta ", rotary.theta() > 0 ? rotary.theta() : 10000.0);
  if (rotary.scaling() == v1::ROTARY_SCALING_UNSPECIFIED) return text;
  return absl::StrCat(text, ", ", ShortName(v1::RotaryScaling_Name(rotary.scaling()), "ROTARY_SCALING_"),
                      " scaling by ", rotary.factor(),
                      rotary.width() > 0 ? absl::StrCat("; ", rotary.width(), " elements of a head") : "");
}

// "4096 tokens, but every 2nd layer"; empty: there are none.
std::string WindowText(const v1::ModelSpec& model) {
  if (model.attention_window() == 0) return "";
  std::string text = absl::StrCat(model.attention_window(), " tokens");
  if (model.windowless_interval() > 0)
    absl::StrAppend(&text, ", but of layers ", model.windowless_interval(), ", ",
                    2 * model.windowless_interval(), ", ...");
  if (model.windowless_layers_size() > 0)
    absl::StrAppend(&text, ", but of layers ", absl::StrJoin(model.windowless_layers(), ", "));
  if (model.window_rotary_theta() > 0)
    absl::StrAppend(&text, "; their theta is ", model.window_rotary_theta());
  return text;
}

// Where norms stand, and which others there are; empty: before each part alone.
std::string NormText(const v1::ModelSpec& model) {
  std::vector<std::string> parts;
  if (model.norm_placement() > v1::NORM_PLACEMENT_BEFORE)
    parts.push_back(model.norm_placement() == v1::NORM_PLACEMENT_AFTER ? "behind each part"
                                                                       : "before and behind each part");
  if (model.head_norms()) parts.emplace_back("of each head of queries and keys");
  if (model.joint_head_norms()) parts.emplace_back("over all heads of queries and of keys");
  return absl::StrJoin(parts, ", ");
}

std::string CapText(const v1::ModelSpec& model) {
  std::vector<std::string> parts;
  if (model.score_cap() > 0) parts.push_back(absl::StrCat("scores at ", model.score_cap()));
  if (model.logit_cap() > 0) parts.push_back(absl::StrCat("logits at ", model.logit_cap()));
  if (model.query_key_value_clip() > 0)
    parts.push_back(absl::StrCat("queries, keys and values at ", model.query_key_value_clip()));
  return absl::StrJoin(parts, ", ");
}

std::string RouterText(const v1::ModelSpec& model) {
  std::vector<std::string> parts;
  if (model.router_balance_loss() > 0)
    parts.push_back(absl::StrCat("balance loss times ", model.router_balance_loss(),
                                 " (each layer's and sample's; --router-balance-loss changes it)"));
  if (model.router_z_loss() > 0) parts.push_back(absl::StrCat("z loss times ", model.router_z_loss()));
  if (model.expert_capacity_factor() > 0)
    parts.push_back(absl::StrCat("experts take ", model.expert_capacity_factor(),
                                 " times an even share of a sample's rows (--expert-capacity changes it)"));
  return absl::StrJoin(parts, ", ");
}

}  // namespace

absl::StatusOr<ModelInfo> InfoOf(const std::string& path) {
  ModelInfo info;
  if (HasModel(path)) {
    PENSTOCK_ASSIGN_OR_RETURN(const ModelFolder folder, OpenModelFolder(path));
    info.model = folder.model;
    info.kind = absl::StrCat("Penstock, iteration ", folder.next_iteration);
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(const HuggingFaceModel model, ReadHuggingFaceConfig(path));
    info.model = model.spec;
    info.kind = absl::StrCat("Hugging Face, ", model.family);
    info.dropout = model.dropout;
  }
  info.parameters = CountParameters(info.model);
  return info;
}

std::vector<std::pair<std::string, std::string>> Describe(const ModelInfo& info) {
  const v1::ModelSpec& model = info.model;
  std::vector<std::pair<std::string, std::string>> lines = {
      {"kind", info.kind},
      {"parameters", absl::StrCat(info.parameters)},
      {"number format", ShortName(v1::DataType_Name(model.dtype()), "DATA_TYPE_")},
      {"layers", Layers(model)},
      {"width", absl::StrCat(model.hidden())},
      {"heads", Heads(model)},
      {"feed-forward", FeedForwardText(model)},
      {"vocabulary", absl::StrCat(model.vocab())},
      {"positions", PositionText(model)},
      {"head", model.tied_head() ? "the token embedding" : "its own"}};
  const std::pair<const char*, std::string> present[] = {{"windows", WindowText(model)},
                                                         {"norms", NormText(model)},
                                                         {"caps", CapText(model)},
                                                         {"routers", RouterText(model)}};
  for (const auto& [name, text] : present) {
    if (!text.empty()) lines.emplace_back(name, text);
  }
  if (model.max_sequence_length() > 0)
    lines.emplace_back("longest sequence", absl::StrCat(model.max_sequence_length()));
  if (model.has_adapters()) {
    lines.emplace_back("adapters",
                       absl::StrCat("rank ", model.adapters().rank(), " at ", NamesOf(model.adapters()),
                                    ", scale ", ScaleOf(model.adapters())));
  }
  if (!info.dropout.empty())
    lines.emplace_back("left out", absl::StrCat(info.dropout, ": Penstock trains without dropout"));
  return lines;
}

}  // namespace penstock::cli
