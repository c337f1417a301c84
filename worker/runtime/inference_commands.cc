#include "worker/runtime/inference_commands.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/dataset/indexed_dataset.h"
#include "common/status/status_macros.h"
#include "worker/inference/evaluation.h"
#include "worker/inference/language_model.h"
#include "worker/inference/model_file.h"
#include "worker/inference/sampling.h"
#include "worker/inference/text_decoder.h"
#include "worker/profile/measured_device.h"
#include "worker/runtime/generated_text.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// Of samples that are evaluated together, as far as one is not longer.
constexpr size_t kTokensTogether = 8192;

// `longest`: tokens of a text. Positions that are not learned have no end.
absl::StatusOr<std::unique_ptr<LanguageModel>> Load(const InferenceOptions& options, int64_t longest) {
  PENSTOCK_ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(options.model_json));
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredDevice device, OpenMeasuredDevice(options.device));
  at::set_num_threads(static_cast<int>(options.threads));
  const bool learned = config.architecture == Architecture::kGpt &&
                       config.position.value_or(Position::kLearned) == Position::kLearned;
  if (!learned) config.max_sequence_length = std::max(config.max_sequence_length, longest);
  return LanguageModel::Load(config, {options.checkpoint, options.base}, device.place);
}

// Of a decoder-only model the target loses its end last: what is learnt stays. Returns whether it was cut.
bool Cut(const ModelConfig& config, int64_t max_length, SampleTokensOf& sample) {
  const auto limit = static_cast<size_t>(max_length);
  const size_t before = sample.input.size() + sample.target.size();
  sample.target.resize(std::min(sample.target.size(), limit));
  sample.weights.resize(std::min(sample.weights.size(), limit));
  const size_t left = config.architecture == Architecture::kT5 ? limit : limit - sample.target.size();
  sample.input.resize(std::min(sample.input.size(), left));
  return sample.input.size() + sample.target.size() < before;
}

struct Evaluation {
  // Of them, and of all that the datasets have.
  uint64_t samples = 0;
  uint64_t all_samples = 0;
  uint64_t cut_samples = 0;
  uint64_t tokens = 0;
  EvaluatedLoss loss;
};

struct NamedEvaluation {
  std::string name;
  Evaluation evaluation;
};

// As if it were one dataset.
Evaluation SumOf(const std::vector<NamedEvaluation>& parts) {
  Evaluation sum;
  for (const auto& [name, part] : parts) {
    sum.samples += part.samples;
    sum.all_samples += part.all_samples;
    sum.cut_samples += part.cut_samples;
    sum.tokens += part.tokens;
    sum.loss.sum += part.loss.sum;
    sum.loss.weight += part.loss.weight;
    sum.loss.positions += part.loss.positions;
  }
  return sum;
}

absl::StatusOr<SampleTokensOf> ReadSample(const IndexedDataset& dataset, size_t index) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, dataset.Tokens(index));
  const auto input = tokens.begin() + dataset.Length(index).input;
  SampleTokensOf sample = {{tokens.begin(), input}, {input, tokens.end()}};
  if (!dataset.has_weights()) return sample;
  PENSTOCK_ASSIGN_OR_RETURN(sample.weights, dataset.TargetWeights(index));
  return sample;
}

absl::Status AddLoss(const LanguageModel& model, std::vector<SampleTokensOf>& together, Evaluation& result) {
  if (together.empty()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(const EvaluatedLoss loss, Evaluate(model, together));
  result.loss.sum += loss.sum;
  result.loss.weight += loss.weight;
  result.loss.positions += loss.positions;
  together.clear();
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> EvaluateDataset(const LanguageModel& model, const IndexedDataset& dataset,
                                           const EvaluateOptions& options, int64_t max_length) {
  Evaluation result;
  result.all_samples = dataset.size();
  result.samples =
      options.samples == 0 ? dataset.size() : std::min<uint64_t>(options.samples, dataset.size());
  std::vector<SampleTokensOf> together;
  size_t tokens = 0;
  for (uint64_t i = 0; i < result.samples; ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(SampleTokensOf sample,
                              ReadSample(dataset, i * dataset.size() / result.samples));
    result.cut_samples += Cut(model.config(), max_length, sample);
    const size_t own = sample.input.size() + sample.target.size();
    if (tokens + own > kTokensTogether) {
      PENSTOCK_RETURN_IF_ERROR(AddLoss(model, together, result));
      tokens = 0;
    }
    together.push_back(std::move(sample));
    tokens += own;
    result.tokens += own;
  }
  PENSTOCK_RETURN_IF_ERROR(AddLoss(model, together, result));
  return result;
}

std::string Describe(const std::vector<NamedEvaluation>& parts) {
  const Evaluation all = SumOf(parts);
  std::string text = absl::StrFormat(
      "samples     %d of %d, %d of them cut\ntokens      %d, of which %d are predicted\n"
      "loss        %.6f a token (perplexity %.4g)\n",
      all.samples, all.all_samples, all.cut_samples, all.tokens, all.loss.positions, all.loss.mean(),
      std::exp(all.loss.mean()));
  if (parts.size() == 1) return text;
  for (const auto& [name, part] : parts) {
    absl::StrAppendFormat(&text, "  %-9s %.6f a token, of %d predicted tokens of %d samples\n", name,
                          part.loss.mean(), part.loss.positions, part.samples);
  }
  return text;
}

nlohmann::ordered_json ToJson(const Evaluation& evaluation) {
  return {{"samples", evaluation.samples},
          {"cut_samples", evaluation.cut_samples},
          {"tokens", evaluation.tokens},
          {"predicted_tokens", evaluation.loss.positions},
          {"loss", evaluation.loss.mean()}};
}

std::string Json(const std::vector<NamedEvaluation>& parts) {
  nlohmann::ordered_json json = ToJson(SumOf(parts));
  for (const auto& [name, part] : parts) {
    if (parts.size() == 1) break;
    nlohmann::ordered_json own = {{"name", name}};
    own.update(ToJson(part));
    json["datasets"].push_back(std::move(own));
  }
  return json.dump() + "\n";
}

absl::StatusOr<std::vector<std::unique_ptr<IndexedDataset>>> OpenAll(
    const std::vector<NamedDataset>& datasets) {
  std::vector<std::unique_ptr<IndexedDataset>> opened;
  for (const NamedDataset& dataset : datasets) {
    PENSTOCK_ASSIGN_OR_RETURN(opened.emplace_back(), IndexedDataset::Open(dataset.path));
    if (opened.back()->size() == 0)
      return absl::InvalidArgumentError(absl::StrCat("--dataset '", dataset.path, "' holds no sample"));
  }
  return opened;
}

}  // namespace

absl::Status RunGenerate(const GenerateOptions& options, std::ostream& out) {
  const int64_t longest = static_cast<int64_t>(options.tokens.size()) + options.max_tokens;
  PENSTOCK_ASSIGN_OR_RETURN(const auto model, Load(options.inference, longest));
  PENSTOCK_ASSIGN_OR_RETURN(const auto decoder, StartDecoder(*model, options.tokens, options.max_tokens));
  PENSTOCK_ASSIGN_OR_RETURN(const auto text, MakeGeneratedText(options));
  Sampler sampler({.temperature = options.temperature, .top_p = options.top_p, .seed = options.seed});
  const absl::Time begin = absl::Now();
  int64_t count = 0;
  while (count < options.max_tokens) {
    PENSTOCK_ASSIGN_OR_RETURN(const int32_t token,
                              CallTorch("sampling", [&] { return sampler.Choose(decoder->logits()); }));
    if (std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end()) break;
    PENSTOCK_ASSIGN_OR_RETURN(const std::string next, text->Append(token));
    out << next << std::flush;
    if (++count < options.max_tokens) PENSTOCK_RETURN_IF_ERROR(decoder->Append(token));
  }
  out << std::endl;
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  std::cerr << absl::StrFormat("%d tokens, %.1f a second\n", count, static_cast<double>(count) / seconds);
  return absl::OkStatus();
}

absl::Status RunEvaluate(const EvaluateOptions& options, std::ostream& out) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto datasets, OpenAll(options.datasets));
  PENSTOCK_ASSIGN_OR_RETURN(const auto model, Load(options.inference, options.max_length));
  const int64_t positions = model->config().max_sequence_length;
  const int64_t max_length = options.max_length == 0 ? positions : options.max_length;
  if (max_length > positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-length ", max_length, ": the model has ", positions, " positions; use less"));
  }
  std::vector<NamedEvaluation> parts;
  for (size_t i = 0; i < datasets.size(); ++i) {
    parts.push_back({.name = options.datasets[i].name, .evaluation = {}});
    PENSTOCK_ASSIGN_OR_RETURN(parts.back().evaluation,
                              EvaluateDataset(*model, *datasets[i], options, max_length));
  }
  out << (options.json ? Json(parts) : Describe(parts));
  return absl::OkStatus();
}

}  // namespace penstock::worker
