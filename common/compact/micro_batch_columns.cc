#include "common/compact/micro_batch_columns.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/compact/deflate.h"
#include "common/compact/instruction_columns.h"
#include "common/status/status_macros.h"
#include "penstock/v1/compact.pb.h"

namespace penstock {
namespace {

using Lengths = google::protobuf::RepeatedField<uint32_t>;

uint32_t LengthOf(const v1::Sample& sample, v1::CumulativeLengths kind) {
  switch (kind) {
    case v1::CUMULATIVE_LENGTHS_OF_INPUTS:
      return sample.input_tokens();
    case v1::CUMULATIVE_LENGTHS_OF_TARGETS:
      return sample.target_tokens();
    default:
      return sample.input_tokens() + sample.target_tokens();
  }
}

// Of samples[first], ..., samples[first + count - 1].
Lengths CumulativeOf(const Samples& samples, int first, int count, v1::CumulativeLengths kind) {
  Lengths lengths;
  lengths.Reserve(count + 1);
  uint32_t sum = 0;
  lengths.Add(sum);
  for (int i = 0; i < count; ++i) lengths.Add(sum += LengthOf(samples.at(first + i), kind));
  return lengths;
}

bool Same(const Lengths& a, const Lengths& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

// How the lengths follow from the samples. Those that do are cleared.
v1::CumulativeLengths TakeLengths(const Samples& samples, int first, int count, Lengths* lengths) {
  if (lengths->empty()) return v1::CUMULATIVE_LENGTHS_UNSPECIFIED;
  for (const v1::CumulativeLengths kind :
       {v1::CUMULATIVE_LENGTHS_OF_SAMPLES, v1::CUMULATIVE_LENGTHS_OF_INPUTS,
        v1::CUMULATIVE_LENGTHS_OF_TARGETS}) {
    if (!Same(CumulativeOf(samples, first, count, kind), *lengths)) continue;
    lengths->Clear();
    return kind;
  }
  return v1::CUMULATIVE_LENGTHS_UNSPECIFIED;
}

void PackSamples(const Samples& samples, v1::MicroBatchColumns& columns) {
  uint64_t before = 0;
  bool tasks = false;
  bool weights = false;
  for (const v1::Sample& sample : samples) {
    columns.add_sample_id(static_cast<int64_t>(sample.sample_id() - before));
    before = sample.sample_id();
    columns.add_input_tokens(sample.input_tokens());
    columns.add_target_tokens(sample.target_tokens());
    tasks = tasks || sample.task() != 0;
    weights = weights || sample.has_loss_weight();
  }
  for (const v1::Sample& sample : samples) {
    if (tasks) columns.add_task(sample.task());
    if (weights) columns.add_has_loss_weight(sample.has_loss_weight() ? 1 : 0);
    if (sample.has_loss_weight()) columns.add_loss_weight(sample.loss_weight());
  }
}

absl::Status CheckColumn(absl::string_view name, int size, int needed, bool may_be_empty = false) {
  if (size == needed || (may_be_empty && size == 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " has ", size, " values, not ", needed));
}

absl::Status CheckColumns(const v1::MicroBatchColumns& columns) {
  const int samples = columns.sample_id_size();
  PENSTOCK_RETURN_IF_ERROR(CheckColumn("input_tokens", columns.input_tokens_size(), samples));
  PENSTOCK_RETURN_IF_ERROR(CheckColumn("target_tokens", columns.target_tokens_size(), samples));
  PENSTOCK_RETURN_IF_ERROR(CheckColumn("task", columns.task_size(), samples, /*may_be_empty=*/true));
  PENSTOCK_RETURN_IF_ERROR(
      CheckColumn("has_loss_weight", columns.has_loss_weight_size(), samples, /*may_be_empty=*/true));
  int weights = 0;
  for (const uint32_t has : columns.has_loss_weight()) weights += has != 0 ? 1 : 0;
  PENSTOCK_RETURN_IF_ERROR(CheckColumn("loss_weight", columns.loss_weight_size(), weights));
  const int micro_batches = columns.micro_batches_size();
  PENSTOCK_RETURN_IF_ERROR(CheckColumn("samples", columns.samples_size(), micro_batches));
  PENSTOCK_RETURN_IF_ERROR(CheckColumn("source_cu_seqlens", columns.source_cu_seqlens_size(), micro_batches));
  PENSTOCK_RETURN_IF_ERROR(CheckColumn("target_cu_seqlens", columns.target_cu_seqlens_size(), micro_batches));
  uint64_t named = 0;
  for (const uint32_t count : columns.samples()) named += count;
  if (named == static_cast<uint64_t>(samples)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("samples: micro-batches have ", named, " of ", samples, " samples"));
}

void UnpackSamples(const v1::MicroBatchColumns& columns, Samples* samples) {
  uint64_t id = 0;
  int weight = 0;
  samples->Reserve(columns.sample_id_size());
  for (int i = 0; i < columns.sample_id_size(); ++i) {
    v1::Sample* const sample = samples->Add();
    sample->set_sample_id(id += static_cast<uint64_t>(columns.sample_id(i)));
    sample->set_input_tokens(columns.input_tokens(i));
    sample->set_target_tokens(columns.target_tokens(i));
    if (!columns.task().empty()) sample->set_task(columns.task(i));
    if (!columns.has_loss_weight().empty() && columns.has_loss_weight(i) != 0)
      sample->set_loss_weight(columns.loss_weight(weight++));
  }
}

}  // namespace

std::optional<std::string> PackMicroBatches(const MicroBatches& micro_batches, const Samples& samples) {
  v1::MicroBatchColumns columns;
  uint32_t next = 0;
  for (const v1::MicroBatch& micro_batch : micro_batches) {
    const uint32_t first = next;
    for (const uint32_t index : micro_batch.samples())
      if (index != next++ || index >= static_cast<uint32_t>(samples.size())) return std::nullopt;
    v1::MicroBatch* const added = columns.add_micro_batches();
    *added = micro_batch;
    added->clear_samples();
    const int count = micro_batch.samples_size();
    columns.add_samples(static_cast<uint32_t>(count));
    columns.add_source_cu_seqlens(
        TakeLengths(samples, static_cast<int>(first), count, added->mutable_source_cu_seqlens()));
    columns.add_target_cu_seqlens(
        TakeLengths(samples, static_cast<int>(first), count, added->mutable_target_cu_seqlens()));
  }
  if (next != static_cast<uint32_t>(samples.size())) return std::nullopt;
  PackSamples(samples, columns);
  if (columns.ByteSizeLong() > kMostColumnBytes) return std::nullopt;
  return Deflate(columns.SerializeAsString());
}

absl::Status UnpackMicroBatches(absl::string_view packed, MicroBatches* micro_batches, Samples* samples) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes, Inflate(packed, kMostColumnBytes));
  v1::MicroBatchColumns columns;
  if (!columns.ParseFromString(bytes))
    return absl::InvalidArgumentError("not a serialised MicroBatchColumns");
  PENSTOCK_RETURN_IF_ERROR(CheckColumns(columns));
  UnpackSamples(columns, samples);
  micro_batches->Swap(columns.mutable_micro_batches());
  uint32_t next = 0;
  for (int i = 0; i < micro_batches->size(); ++i) {
    v1::MicroBatch& micro_batch = *micro_batches->Mutable(i);
    const auto first = static_cast<int>(next);
    const auto count = static_cast<int>(columns.samples(i));
    micro_batch.clear_samples();
    for (int sample = 0; sample < count; ++sample) micro_batch.add_samples(next++);
    if (const auto kind = columns.source_cu_seqlens(i); kind != v1::CUMULATIVE_LENGTHS_UNSPECIFIED)
      *micro_batch.mutable_source_cu_seqlens() = CumulativeOf(*samples, first, count, kind);
    if (const auto kind = columns.target_cu_seqlens(i); kind != v1::CUMULATIVE_LENGTHS_UNSPECIFIED)
      *micro_batch.mutable_target_cu_seqlens() = CumulativeOf(*samples, first, count, kind);
  }
  return absl::OkStatus();
}

}  // namespace penstock
