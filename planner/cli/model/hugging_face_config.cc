#include "planner/cli/model/hugging_face_config.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/config_families.h"
#include "planner/cli/model/config_fields.h"

namespace penstock::cli {
namespace {

// Of what configurations of all families may have: tokens, names, how it is generated with, what is logged.
void PassOver(ConfigFields& fields) {
  fields.MeansNothing({"_attn_implementation",
                       "_attn_implementation_autoset",
                       "_commit_hash",
                       "_name_or_path",
                       "architectures",
                       "bad_words_ids",
                       "begin_suppress_tokens",
                       "bos_token_id",
                       "decoder_start_token_id",
                       "diversity_penalty",
                       "do_sample",
                       "early_stopping",
                       "encoder_no_repeat_ngram_size",
                       "eos_token_id",
                       "exponential_decay_length_penalty",
                       "finetuning_task",
                       "forced_bos_token_id",
                       "forced_eos_token_id",
                       "gradient_checkpointing",
                       "id2label",
                       "initializer_range",
                       "label2id",
                       "length_penalty",
                       "max_length",
                       "min_length",
                       "model_type",
                       "no_repeat_ngram_size",
                       "num_beam_groups",
                       "num_beams",
                       "num_return_sequences",
                       "output_attentions",
                       "output_hidden_states",
                       "output_past",
                       "output_scores",
                       "pad_token_id",
                       "prefix",
                       "problem_type",
                       "remove_invalid_values",
                       "repetition_penalty",
                       "return_dict",
                       "return_dict_in_generate",
                       "sep_token_id",
                       "suppress_tokens",
                       "task_specific_params",
                       "temperature",
                       "tf_legacy_loss",
                       "tokenizer_class",
                       "top_k",
                       "top_p",
                       "torchscript",
                       "transformers_version",
                       "typical_p",
                       "use_bfloat16",
                       "use_cache"});
  fields.Require("is_decoder", false);
  fields.Require("cross_attention_hidden_size", nullptr);
  fields.Require("tie_encoder_decoder", false);
  fields.Require("chunk_size_feed_forward", 0);
  fields.Require("pruned_heads", nlohmann::json::object());
  fields.Require("quantization_config", nullptr);
}

// "attn_pdrop 0.1, embd_pdrop 0.1": those that are not 0.
std::string ReadDropout(ConfigFields& fields) {
  std::vector<std::string> found;
  for (const char* field : {"attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout", "dropout_rate",
                            "hidden_dropout", "residual_dropout", "embedding_dropout"}) {
    const double rate = fields.Number(field, 0);
    if (rate != 0) found.push_back(absl::StrCat(field, " ", rate));
  }
  return absl::StrJoin(found, ", ");
}

// `dtype` of transformers 5, `torch_dtype` before it. float16 weights are read, and trained in float32.
v1::DataType ReadDataType(ConfigFields& fields) {
  const std::string old_name = fields.Text("torch_dtype", "float32");
  const std::string type = fields.Text("dtype", old_name);
  if (type == "bfloat16") return v1::DATA_TYPE_BFLOAT16;
  if (type == "float64") return v1::DATA_TYPE_FLOAT64;
  if (type != "float32" && type != "float16") {
    fields.Refuse("dtype", absl::StrCat("'", type, "'; known are bfloat16, float16, float32 and float64"));
  }
  return v1::DATA_TYPE_FLOAT32;
}

using FamilyReader = void (*)(ConfigFields& fields, v1::ModelSpec& model);

// By model_type.
const std::map<std::string, FamilyReader>& Families() {
  static const auto* const kFamilies = new std::map<std::string, FamilyReader>{{kCwm, ReadCwm},
                                                                               {kExaone4, ReadExaone4},
                                                                               {kGemma, ReadGemma},
                                                                               {kGemma2, ReadGemma2},
                                                                               {kGemma3, ReadGemma3},
                                                                               {kGpt2, ReadGpt2},
                                                                               {kGranite, ReadGranite},
                                                                               {kLlama, ReadLlama},
                                                                               {kMinistral, ReadMinistral},
                                                                               {kMistral, ReadMistral},
                                                                               {kMixtral, ReadMixtral},
                                                                               {kMt5, ReadMt5},
                                                                               {kOlmo2, ReadOlmo2},
                                                                               {kOlmo3, ReadOlmo3},
                                                                               {kOlmoe, ReadOlmoe},
                                                                               {kPhi3, ReadPhi3},
                                                                               {kQwen2, ReadQwen2},
                                                                               {kQwen2Moe, ReadQwen2Moe},
                                                                               {kQwen3, ReadQwen3},
                                                                               {kQwen3Moe, ReadQwen3Moe},
                                                                               {kSeedOss, ReadSeedOss},
                                                                               {kSmolLm3, ReadSmolLm3},
                                                                               {kStableLm, ReadStableLm},
                                                                               {kStarcoder2, ReadStarcoder2},
                                                                               {kT5, ReadT5}};
  return *kFamilies;
}

// What families have that Penstock has not, of those that are asked for most. Empty: not known here.
std::string WhatIsMissing(const std::string& family) {
  static const auto* const kMissing = new std::map<std::string, std::string>{
      {"apertus", "an activation of its own (xIELU)"},
      {"arcee", "a squared ReLU"},
      {"bloom", "positions as a slope of the scores (ALiBi)"},
      {"cohere", "attention and feed-forward part side by side"},
      {"cohere2", "attention and feed-forward part side by side"},
      {"ernie4_5", "neighbouring elements of a head that turn together"},
      {"falcon", "attention and feed-forward part side by side"},
      {"gemma3", "images (its text part, saved as gemma3_text, is read)"},
      {"gemma3n", "embeddings of each layer"},
      {"glm", "neighbouring elements of a head that turn together"},
      {"glm4", "neighbouring elements of a head that turn together"},
      {"gpt_bigcode", "queries that are one tensor with one key and value"},
      {"gpt_neox", "attention and feed-forward part side by side"},
      {"gpt_oss", "scores of no key (attention sinks)"},
      {"gptj", "attention and feed-forward part side by side"},
      {"granitemoehybrid", "layers of Mamba"},
      {"helium", "neighbouring elements of a head that turn together"},
      {"hunyuan_v1_dense", "norms of queries and keys that have turned already"},
      {"llama4", "images, and attention in chunks"},
      {"ministral3", "queries that are scaled by their position"},
      {"mistral3", "images"},
      {"mpt", "positions as a slope of the scores (ALiBi)"},
      {"nemotron", "a squared ReLU, and layer norms with an offset"},
      {"olmo", "norms without weights"},
      {"opt", "learnt positions that begin at 2"},
      {"phi", "attention and feed-forward part side by side"},
      {"qwen3_5", "layers of linear attention"},
      {"qwen3_next", "layers of linear attention"}};
  const auto found = kMissing->find(family);
  return found == kMissing->end() ? "" : absl::StrCat(" has ", found->second, ", which Penstock has not");
}

// A window that no sequence is longer than hides nothing: the model is that without it.
void DropIdleWindow(v1::ModelSpec& model) {
  if (model.attention_window() < model.max_sequence_length() || model.window_rotary_theta() > 0) return;
  model.clear_attention_window();
  model.clear_windowless_interval();
  model.clear_windowless_layers();
}

}  // namespace

absl::StatusOr<HuggingFaceModel> ModelOfConfig(const std::string& name, const nlohmann::json& config) {
  if (!config.is_object()) return absl::InvalidArgumentError(absl::StrCat(name, ": is no JSON object"));
  ConfigFields fields(name, config);
  HuggingFaceModel model;
  model.family = fields.Text("model_type");
  if (const auto family = Families().find(model.family); family != Families().end()) {
    family->second(fields, model.spec);
  } else {
    const auto name_of = [](std::string* text, const auto& known) { text->append(known.first); };
    fields.Refuse("model_type", absl::StrCat("'", model.family, "'", WhatIsMissing(model.family),
                                             "; known are ", absl::StrJoin(Families(), ", ", name_of)));
  }
  model.spec.set_dtype(ReadDataType(fields));
  DropIdleWindow(model.spec);
  model.dropout = ReadDropout(fields);
  PassOver(fields);
  PENSTOCK_RETURN_IF_ERROR(fields.Finish());
  return model;
}

void UntieHead(v1::ModelSpec& model) {
  model.set_tied_head(false);
  model.set_unscaled_head(false);
}

absl::StatusOr<HuggingFaceModel> ReadHuggingFaceConfig(const std::string& path) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const std::string file = folder ? absl::StrCat(path, "/config.json") : path;
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  return ModelOfConfig(file, nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false));
}

}  // namespace penstock::cli
