#include "worker/program/micro_batch_from_proto.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "common/status/status_macros.h"
#include "worker/program/enum_from_proto.h"
#include "worker/program/invalid_program.h"
#include "worker/program/parts.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

using v1::StreamProgramsResponse;

// One sample's place in the micro-batch. `index` is into the global batch.
absl::Status AppendSample(const StreamProgramsResponse& message, uint32_t index, MicroBatch& micro_batch) {
  if (index >= static_cast<uint32_t>(message.samples_size())) {
    return Invalid("sample ", index, " is not in the batch of ", message.samples_size());
  }
  const v1::Sample& sample = message.samples(static_cast<int>(index));
  micro_batch.sample_ids.push_back(sample.sample_id());
  micro_batch.input_tokens.push_back(sample.input_tokens());
  micro_batch.target_tokens.push_back(sample.target_tokens());
  return absl::OkStatus();
}

bool HasWeights(const StreamProgramsResponse& message, const v1::MicroBatch& proto) {
  return std::ranges::any_of(proto.samples(), [&message](uint32_t index) {
    return message.samples(static_cast<int>(index)).has_loss_weight();
  });
}

// What the samples weigh in the loss, and whose tasks they are of. The samples are in the batch.
absl::Status AppendLoss(const StreamProgramsResponse& message, const v1::MicroBatch& proto,
                        const JobConfig& job, MicroBatch& micro_batch) {
  const bool weighted = HasWeights(message, proto);
  for (const uint32_t index : proto.samples()) {
    const v1::Sample& sample = message.samples(static_cast<int>(index));
    if (sample.has_loss_weight() && (!std::isfinite(sample.loss_weight()) || sample.loss_weight() < 0)) {
      return Invalid("samples[", index, "].loss_weight is ", sample.loss_weight(),
                     ", expected a number of at least 0");
    }
    std::optional<double> weight;
    if (sample.has_loss_weight()) weight = sample.loss_weight();
    if (weighted) micro_batch.loss_weights.push_back(weight);
    if (job.tasks == 0) continue;
    if (sample.task() >= job.tasks)
      return Invalid("samples[", index, "].task is ", sample.task(), ", but the job has ", job.tasks);
    micro_batch.tasks.push_back(sample.task());
  }
  return absl::OkStatus();
}

// The source or the target of a micro-batch.
struct TokenSide {
  const char* length_field;
  const char* cumulative_field;
  int64_t length = 0;
  const std::vector<int32_t>& cumulative;
  // Tokens of each sample.
  std::vector<int64_t> tokens;
};

absl::Status CheckPadded(const MicroBatch& micro_batch, const TokenSide& side) {
  for (size_t i = 0; i < side.tokens.size(); ++i) {
    if (side.tokens[i] <= side.length) continue;
    return Invalid(side.length_field, " is ", side.length, ", but sample ", micro_batch.sample_ids[i],
                   " has ", side.tokens[i], " tokens");
  }
  return absl::OkStatus();
}

absl::Status CheckConcatenated(const MicroBatch& micro_batch, const TokenSide& side) {
  for (size_t row = 0; row + 1 < micro_batch.row_samples.size(); ++row) {
    int64_t tokens = 0;
    for (int32_t i = micro_batch.row_samples[row]; i < micro_batch.row_samples[row + 1]; ++i) {
      tokens += side.tokens[static_cast<size_t>(i)];
    }
    if (tokens <= side.length) continue;
    return Invalid(side.length_field, " is ", side.length, ", but row ", row, " has ", tokens, " tokens");
  }
  return absl::OkStatus();
}

absl::Status CheckPacked(const MicroBatch& micro_batch, const TokenSide& side) {
  const size_t samples = side.tokens.size();
  if (side.cumulative.size() != samples + 1 || side.cumulative.front() != 0) {
    return Invalid(side.cumulative_field, " must be 0 and one more value for each of the ", samples,
                   " samples");
  }
  for (size_t i = 0; i < samples; ++i) {
    if (int64_t{side.cumulative[i + 1]} - side.cumulative[i] == side.tokens[i]) continue;
    return Invalid(side.cumulative_field, "[", i + 1, "] does not fit sample ", micro_batch.sample_ids[i],
                   " of ", side.tokens[i], " tokens");
  }
  return absl::OkStatus();
}

absl::Status CheckSide(const MicroBatch& micro_batch, const TokenSide& side) {
  switch (micro_batch.layout) {
    case Layout::kPadded:
      return CheckPadded(micro_batch, side);
    case Layout::kPacked:
      return CheckPacked(micro_batch, side);
    case Layout::kConcatenated:
      return CheckConcatenated(micro_batch, side);
  }
  return absl::OkStatus();
}

absl::Status CheckRows(const MicroBatch& micro_batch) {
  const auto samples = static_cast<int64_t>(micro_batch.sample_ids.size());
  if (micro_batch.layout == Layout::kPadded && micro_batch.rows != samples) {
    return Invalid("rows is ", micro_batch.rows, " for ", samples, " samples");
  }
  if (micro_batch.layout != Layout::kConcatenated) return absl::OkStatus();
  const std::vector<int32_t>& ends = micro_batch.row_samples;
  if (static_cast<int64_t>(ends.size()) == micro_batch.rows + 1 && ends.front() == 0 &&
      ends.back() == samples && std::ranges::is_sorted(ends)) {
    return absl::OkStatus();
  }
  return Invalid("row_samples must be ", micro_batch.rows + 1, " ascending values from 0 to ", samples);
}

// The spans of the rows, where there are several context ranks.
absl::Status AppendSpans(const v1::MicroBatch& proto, const JobConfig& job, MicroBatch& micro_batch) {
  if (proto.span_first_size() != proto.span_ranks_size()) {
    return Invalid("span_first has ", proto.span_first_size(), " values, span_ranks ",
                   proto.span_ranks_size());
  }
  if (job.context == 1 && proto.span_first_size() > 0) {
    return Invalid("span_first has ", proto.span_first_size(), " values, but the job has one context rank");
  }
  for (int row = 0; row < proto.span_first_size(); ++row) {
    micro_batch.spans.push_back({.first = proto.span_first(row), .ranks = proto.span_ranks(row)});
  }
  const auto contexts = static_cast<int>(job.context);
  if (job.model.architecture == Architecture::kT5)
    PENSTOCK_RETURN_IF_ERROR(CheckSpans(micro_batch, Side::kSource, contexts));
  return CheckSpans(micro_batch, Side::kTarget, contexts);
}

// The parts in which passes go through the rows. The samples are where the layout says.
absl::Status AppendParts(const v1::MicroBatch& proto, const JobConfig& job, MicroBatch& micro_batch) {
  micro_batch.part_rows.assign(proto.part_rows().begin(), proto.part_rows().end());
  micro_batch.part_chunks.assign(proto.part_chunks().begin(), proto.part_chunks().end());
  micro_batch.whole_backward = proto.whole_backward();
  return CheckParts(micro_batch, job.model,
                    {.contexts = static_cast<int>(job.context),
                     .tensors = static_cast<int>(job.tensor),
                     .experts = static_cast<int>(job.expert)});
}

// That the samples are where the layout says.
absl::Status AppendPlaces(const v1::MicroBatch& proto, const JobConfig& job, MicroBatch& micro_batch) {
  const ModelConfig& model = job.model;
  PENSTOCK_RETURN_IF_ERROR(CheckRows(micro_batch));
  TokenSide source = {
      "source_length", "source_cu_seqlens", micro_batch.source_length, micro_batch.source_cu_seqlens, {}};
  TokenSide target = {
      "target_length", "target_cu_seqlens", micro_batch.target_length, micro_batch.target_cu_seqlens, {}};
  const bool t5 = model.architecture == Architecture::kT5;
  for (size_t i = 0; i < micro_batch.sample_ids.size(); ++i) {
    const int64_t input = micro_batch.input_tokens[i];
    source.tokens.push_back(input);
    target.tokens.push_back(micro_batch.target_tokens[i] + (t5 ? 0 : input));
  }
  if (t5) PENSTOCK_RETURN_IF_ERROR(CheckSide(micro_batch, source));
  PENSTOCK_RETURN_IF_ERROR(CheckSide(micro_batch, target));
  return AppendSpans(proto, job, micro_batch);
}

// Recompute of each stage.
absl::Status AppendRecompute(const StreamProgramsResponse& message, const v1::MicroBatch& proto,
                             MicroBatch& micro_batch) {
  if (proto.recompute_size() != message.layers_per_stage_size()) {
    return Invalid("recompute has ", proto.recompute_size(), " entries for ", message.layers_per_stage_size(),
                   " stages");
  }
  for (int stage = 0; stage < proto.recompute_size(); ++stage) {
    const v1::StageRecompute& recompute = proto.recompute(stage);
    const uint32_t layers = message.layers_per_stage(stage);
    if (uint64_t{recompute.full_layers()} + recompute.selective_layers() > layers) {
      return Invalid("recompute of stage ", stage, " names ", recompute.full_layers(), " full_layers and ",
                     recompute.selective_layers(), " selective_layers of ", layers);
    }
    micro_batch.recompute.push_back({.selective = static_cast<int32_t>(recompute.selective_layers()),
                                     .full = static_cast<int32_t>(recompute.full_layers())});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MicroBatch> MicroBatchFromProto(const StreamProgramsResponse& message,
                                               const v1::MicroBatch& proto, const JobConfig& job,
                                               ProgramKind kind) {
  MicroBatch micro_batch;
  for (uint32_t index : proto.samples()) {
    PENSTOCK_RETURN_IF_ERROR(AppendSample(message, index, micro_batch));
  }
  if (micro_batch.sample_ids.empty()) return Invalid("samples is empty");
  PENSTOCK_RETURN_IF_ERROR(AppendLoss(message, proto, job, micro_batch));
  PENSTOCK_ASSIGN_OR_RETURN(micro_batch.layout, LayoutFromProto(proto.layout(), "layout"));
  micro_batch.computed_tokens = static_cast<int64_t>(proto.computed_tokens());
  micro_batch.rows = proto.rows();
  micro_batch.source_length = proto.source_length();
  micro_batch.target_length = proto.target_length();
  micro_batch.source_cu_seqlens.assign(proto.source_cu_seqlens().begin(), proto.source_cu_seqlens().end());
  micro_batch.target_cu_seqlens.assign(proto.target_cu_seqlens().begin(), proto.target_cu_seqlens().end());
  micro_batch.row_samples.assign(proto.row_samples().begin(), proto.row_samples().end());
  if (kind == ProgramKind::kTraining && job.model.counts_routed_samples()) {
    if (message.real_tokens() == 0)
      return Invalid(
          "real_tokens is 0, but losses of the model's routers are divided by it, and a batch with experts "
          "of a capacity has some");
    micro_batch.batch_tokens = message.real_tokens();
  }
  PENSTOCK_RETURN_IF_ERROR(AppendPlaces(proto, job, micro_batch));
  PENSTOCK_RETURN_IF_ERROR(AppendParts(proto, job, micro_batch));
  PENSTOCK_RETURN_IF_ERROR(AppendRecompute(message, proto, micro_batch));
  return micro_batch;
}

}  // namespace penstock::worker
