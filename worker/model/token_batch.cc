#include "worker/model/token_batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "worker/model/attention_shape.h"
#include "worker/program/parts.h"
#include "worker/program/share.h"
#include "worker/torch/boundary.h"
#include "worker/torch/to_device.h"

namespace penstock::worker {
namespace {

using Tokens = std::span<const int32_t>;

absl::Status SampleError(const MicroBatch& shape, size_t sample, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("sample ", shape.sample_ids[sample], ": ", problem));
}

bool IsT5(const ModelConfig& config) { return config.architecture == Architecture::kT5; }

absl::Status CheckCumulative(const char* field, const std::vector<int32_t>& cu_seqlens, size_t samples) {
  if (cu_seqlens.size() == samples + 1 && cu_seqlens.front() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected ", samples + 1, " values that begin with 0"));
}

absl::Status CheckRows(const MicroBatch& shape) {
  const size_t samples = shape.sample_ids.size();
  if (shape.layout == Layout::kPadded && shape.rows != static_cast<int64_t>(samples)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows: ", shape.rows, ", but there are ", samples, " samples"));
  }
  if (shape.layout != Layout::kConcatenated) return absl::OkStatus();
  const std::vector<int32_t>& ends = shape.row_samples;
  if (ends.size() == static_cast<size_t>(shape.rows) + 1 && ends.front() == 0 &&
      ends.back() == static_cast<int32_t>(samples) && std::ranges::is_sorted(ends)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("row_samples: expected ", shape.rows + 1, " ascending values from 0 to ", samples));
}

absl::Status CheckShape(const MicroBatch& shape, const ModelConfig& config, size_t token_lists) {
  const size_t samples = shape.sample_ids.size();
  if (samples == 0) return absl::InvalidArgumentError("the micro-batch has no sample");
  if (shape.input_tokens.size() != samples || shape.target_tokens.size() != samples ||
      token_lists != samples) {
    return absl::InvalidArgumentError(absl::StrCat(samples, " samples, but ", shape.input_tokens.size(),
                                                   " input_tokens, ", shape.target_tokens.size(),
                                                   " target_tokens and ", token_lists, " token lists"));
  }
  if (shape.layout != Layout::kPacked) return CheckRows(shape);
  PENSTOCK_RETURN_IF_ERROR(CheckCumulative("target_cu_seqlens", shape.target_cu_seqlens, samples));
  return IsT5(config) ? CheckCumulative("source_cu_seqlens", shape.source_cu_seqlens, samples)
                      : absl::OkStatus();
}

// That every row lies on context ranks that there are, divided only where attention of what is divided is
// known, and that its parts are in order.
absl::Status CheckPlacement(const MicroBatch& shape, const ModelConfig& config, const GroupPlace& place) {
  PENSTOCK_RETURN_IF_ERROR(CheckSpans(shape, Side::kTarget, place.contexts));
  PENSTOCK_RETURN_IF_ERROR(CheckParts(shape, config, place));
  if (!IsT5(config) || !AnyRowIsDivided(shape)) return absl::OkStatus();
  return absl::InvalidArgumentError("spans: the samples of a T5 cannot be divided over context ranks");
}

// Where the place of a sample ends whose neighbour begins at offsets[sample + 1]: there, or at the end of its
// row.
int64_t PlaceEnd(const MicroBatch& shape, const std::vector<int64_t>& offsets, size_t sample,
                 int64_t row_length, int64_t tokens) {
  const int64_t next = sample + 1 < offsets.size() ? offsets[sample + 1] : tokens;
  if (shape.layout == Layout::kPacked) return next;
  return std::min(next, (offsets[sample] / row_length + 1) * row_length);
}

// That `count` tokens of the sample fit where they lie: exactly, where samples are packed.
absl::Status CheckPlace(const MicroBatch& shape, const std::vector<int64_t>& offsets, size_t sample,
                        int64_t row_length, int64_t tokens, int64_t count) {
  if (count == 0) return absl::OkStatus();
  if (shape.layout != Layout::kPacked && (row_length == 0 || offsets[sample] >= tokens)) {
    return SampleError(shape, sample, absl::StrCat(count, " tokens behind the end of the rows"));
  }
  const int64_t room = PlaceEnd(shape, offsets, sample, row_length, tokens) - offsets[sample];
  if (shape.layout == Layout::kPacked ? room == count : room >= count) return absl::OkStatus();
  return SampleError(shape, sample, absl::StrCat(count, " tokens in a place for ", room));
}

absl::Status CheckTokens(const MicroBatch& shape, size_t sample, Tokens tokens, int64_t vocab) {
  const size_t length = size_t{shape.input_tokens[sample]} + shape.target_tokens[sample];
  if (tokens.size() < length) {
    return SampleError(shape, sample,
                       absl::StrCat(length, " tokens planned, the dataset has ", tokens.size()));
  }
  for (size_t p = 0; p < length; ++p) {
    if (tokens[p] >= 0 && tokens[p] < vocab) continue;
    return SampleError(shape, sample,
                       absl::StrCat("token ", p, " has id ", tokens[p], ", the model's vocab is ", vocab,
                                    "; import the data with its tokenizer's ids or set vocab above them"));
  }
  return absl::OkStatus();
}

absl::Status CheckWeights(const MicroBatch& shape, size_t sample, size_t weights) {
  if (weights >= shape.target_tokens[sample]) return absl::OkStatus();
  return SampleError(
      shape, sample,
      absl::StrCat("has ", weights, " weights for ", shape.target_tokens[sample], " tokens of its target"));
}

// Ids and positions of one side as flat host arrays.
class HostSequence {
 public:
  explicit HostSequence(int64_t tokens)
      : ids_(static_cast<size_t>(tokens)), positions_(static_cast<size_t>(tokens)) {}

  void Put(int64_t offset, Tokens tokens) {
    std::ranges::copy(tokens, ids_.begin() + offset);
    std::iota(positions_.begin() + offset,
              positions_.begin() + offset + static_cast<ptrdiff_t>(tokens.size()), 0);
  }

  // Positions of padded rows go on into the padding.
  void NumberRow(int64_t offset, int64_t length) {
    std::iota(positions_.begin() + offset, positions_.begin() + offset + length, 0);
  }

  void Take(const MicroBatch& shape, Side side, const GroupPlace& place) {
    ids_ = ShareOf(std::move(ids_), shape, side, place);
    positions_ = ShareOf(std::move(positions_), shape, side, place);
  }

  // Nothing is left here.
  TokenSequence StageFor(at::Device device, bool positions) {
    TokenSequence sequence;
    sequence.ids = StagedFor(device, std::move(ids_));
    if (positions) sequence.positions = StagedFor(device, std::move(positions_));
    return sequence;
  }

 private:
  std::vector<int64_t> ids_;
  std::vector<int64_t> positions_;
};

// Where the loss counts in one micro-batch.
struct HostLoss {
  std::vector<int64_t> positions;
  std::vector<int32_t> labels;
  // Empty: each 1.
  std::vector<float> weights;
  std::vector<uint32_t> tasks;

  // At `offset` + i the loss asks for tokens[i]; the last so many of `of_target` are their weights.
  void Ask(int64_t offset, Tokens tokens, absl::Span<const float> of_target) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      positions.push_back(offset + static_cast<int64_t>(i));
      labels.push_back(tokens[i]);
    }
    if (!of_target.empty()) of_target.remove_prefix(of_target.size() - tokens.size());
    weights.insert(weights.end(), of_target.begin(), of_target.end());
  }

  // All positions since the last call are of this task.
  void EndTask(uint32_t task) { tasks.resize(positions.size(), task); }

  std::vector<LossRun> Runs() const {
    std::vector<LossRun> runs;
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (i == 0 || tasks[i] != tasks[i - 1]) runs.push_back({.task = tasks[i]});
      ++runs.back().positions;
      runs.back().weight += weights.empty() ? 1 : double{weights[i]};
    }
    return runs;
  }

  // Where it counts on a context rank, as indices into what lies there.
  void Take(const MicroBatch& shape, const GroupPlace& place) {
    if (place.contexts == 1) return;
    HostLoss share;
    int64_t begin = 0;
    for (const TokenRun& run : RunsOf(shape, Side::kTarget, place.context)) {
      const auto first = std::ranges::lower_bound(positions, run.begin);
      const auto last = std::ranges::lower_bound(positions, run.begin + run.length);
      for (auto position = first; position != last; ++position) {
        share.positions.push_back(begin + *position - run.begin);
        const auto i = static_cast<size_t>(position - positions.begin());
        share.labels.push_back(labels[i]);
        if (!weights.empty()) share.weights.push_back(weights[i]);
        if (!tasks.empty()) share.tasks.push_back(tasks[i]);
      }
      begin += run.length;
    }
    *this = std::move(share);
  }
};

struct HostBatch {
  HostSequence source;
  HostSequence target;
  HostLoss loss;

  // Leaves what a context rank has.
  void Take(const MicroBatch& shape, bool t5, const GroupPlace& place) {
    if (t5) source.Take(shape, Side::kSource, place);
    target.Take(shape, Side::kTarget, place);
    loss.Take(shape, place);
  }
};

void AddDecoderOnly(int64_t offset, size_t input, Tokens tokens, absl::Span<const float> weights,
                    HostBatch& batch) {
  batch.target.Put(offset, tokens);
  if (tokens.empty()) return;
  const size_t first = std::max<size_t>(input, 1);
  batch.loss.Ask(offset + static_cast<int64_t>(first) - 1, tokens.subspan(std::min(first, tokens.size())),
                 weights);
}

void AddEncoderDecoder(int64_t source_offset, int64_t target_offset, size_t input, Tokens tokens,
                       absl::Span<const float> weights, int32_t start, HostBatch& batch) {
  batch.source.Put(source_offset, tokens.first(input));
  const Tokens target = tokens.subspan(input);
  if (target.empty()) return;
  std::vector<int32_t> shifted = {start};
  shifted.insert(shifted.end(), target.begin(), target.end() - 1);
  batch.target.Put(target_offset, shifted);
  batch.loss.Ask(target_offset, target, weights);
}

// Fills the batch with the tokens, of samples that a context rank has tokens of. Possible errors: those of
// MakeTokenBatch.
absl::Status AddSamples(const MicroBatch& shape, const std::vector<std::vector<int32_t>>& tokens,
                        const std::vector<std::vector<float>>& weights, const ModelConfig& config,
                        const GroupPlace& place, HostBatch& batch) {
  const bool t5 = IsT5(config);
  const int64_t source_tokens = t5 ? SourceTokens(shape) : 0;
  const int64_t target_tokens = TargetTokens(shape);
  const std::vector<int64_t> sources = t5 ? SourceOffsets(shape, config) : std::vector<int64_t>();
  const std::vector<int64_t> targets = TargetOffsets(shape, config);
  const std::vector<bool> on_rank = SamplesOn(shape, place.context);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!on_rank[i]) continue;
    const size_t input = shape.input_tokens[i];
    const size_t length = input + shape.target_tokens[i];
    PENSTOCK_RETURN_IF_ERROR(CheckTokens(shape, i, tokens[i], config.vocab));
    PENSTOCK_RETURN_IF_ERROR(CheckPlace(shape, targets, i, shape.target_length, target_tokens,
                                        static_cast<int64_t>(t5 ? length - input : length)));
    const Tokens sample = Tokens(tokens[i]).first(length);
    absl::Span<const float> of_target;
    if (!weights.empty()) {
      PENSTOCK_RETURN_IF_ERROR(CheckWeights(shape, i, weights[i].size()));
      of_target = absl::MakeConstSpan(weights[i]).first(shape.target_tokens[i]);
    }
    if (shape.layout == Layout::kPadded) batch.target.NumberRow(targets[i], shape.target_length);
    if (t5) {
      PENSTOCK_RETURN_IF_ERROR(
          CheckPlace(shape, sources, i, shape.source_length, source_tokens, static_cast<int64_t>(input)));
      AddEncoderDecoder(sources[i], targets[i], input, sample, of_target, config.decoder_start_token, batch);
    } else {
      AddDecoderOnly(targets[i], input, sample, of_target, batch);
    }
    if (!shape.tasks.empty()) batch.loss.EndTask(shape.tasks[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<HostBatch> MakeHostBatch(const MicroBatch& shape,
                                        const std::vector<std::vector<int32_t>>& tokens,
                                        const std::vector<std::vector<float>>& weights,
                                        const ModelConfig& config, const GroupPlace& place) {
  PENSTOCK_RETURN_IF_ERROR(CheckShape(shape, config, tokens.size()));
  const int64_t source_tokens = IsT5(config) ? SourceTokens(shape) : 0;
  HostBatch batch{HostSequence(source_tokens), HostSequence(TargetTokens(shape)), {}};
  PENSTOCK_RETURN_IF_ERROR(AddSamples(shape, tokens, weights, config, place, batch));
  batch.Take(shape, IsT5(config), place);
  return batch;
}

void StageLabels(at::Device device, HostLoss loss, TokenBatch& batch) {
  if (loss.weights.empty()) {
    batch.labels = StagedFor(device, std::vector<int64_t>(loss.labels.begin(), loss.labels.end()));
    return;
  }
  std::vector<int32_t> bits(loss.weights.size());
  std::ranges::transform(loss.weights, bits.begin(),
                         [](float weight) { return std::bit_cast<int32_t>(weight); });
  batch.labels = StagedFor(device, std::move(loss.labels));
  batch.loss_weights = StagedFor(device, std::move(bits)).view(at::kFloat);
}

at::Tensor Copied(const at::Tensor& staged, at::Device device) {
  return staged.defined() ? Unstaged(staged, device) : staged;
}

TokenSequence Copied(const TokenSequence& staged, at::Device device) {
  return {Copied(staged.ids, device), Copied(staged.positions, device)};
}

}  // namespace

TokenNeeds TokenNeedsOf(const ModelConfig& config, const StageRange& range) {
  return {.source = EmbedsSource(config, range), .target = EmbedsTarget(config, range), .loss = range.last};
}

absl::StatusOr<TokenBatch> MakeTokenBatch(const MicroBatch& shape,
                                          const std::vector<std::vector<int32_t>>& tokens,
                                          const ModelConfig& config, const TokenNeeds& needs,
                                          at::Device device, const GroupPlace& place,
                                          const std::vector<std::vector<float>>& weights) {
  PENSTOCK_RETURN_IF_ERROR(CheckPlacement(shape, config, place));
  HostBatch host{HostSequence(0), HostSequence(0), {}};
  if (needs.any()) {
    PENSTOCK_ASSIGN_OR_RETURN(host, MakeHostBatch(shape, tokens, weights, config, place));
  }
  return CallTorch("the tokens of a micro-batch", [&] {
    TokenBatch batch;
    batch.attention =
        std::make_shared<const MicroBatchAttention>(MakeAttentionShapes(shape, config, device, place));
    if (needs.source) batch.source = host.source.StageFor(device, /*positions=*/false);
    if (needs.target) batch.target = host.target.StageFor(device, /*positions=*/!IsT5(config));
    if (!needs.loss) return batch;
    batch.loss_positions = StagedFor(device, std::move(host.loss.positions));
    batch.loss_runs = host.loss.Runs();
    StageLabels(device, std::move(host.loss), batch);
    return batch;
  });
}

absl::StatusOr<TokenBatch> ToDevice(const TokenBatch& staged, at::Device device) {
  return CallTorch("the tokens of a micro-batch", [&] {
    TokenBatch batch;
    batch.source = Copied(staged.source, device);
    batch.target = Copied(staged.target, device);
    batch.loss_positions = Copied(staged.loss_positions, device);
    batch.labels = Copied(staged.labels, device);
    batch.loss_weights = Copied(staged.loss_weights, device);
    batch.loss_runs = staged.loss_runs;
    batch.attention = std::make_shared<const MicroBatchAttention>(ToDevice(*staged.attention, device));
    return batch;
  });
}

}  // namespace penstock::worker
