#include "planner/core/verify/share.h"

#include <algorithm>

namespace penstock::core::verify {
namespace {

bool IsT5(const v1::Plan& plan) { return plan.model().architecture() == v1::ARCHITECTURE_T5; }

uint64_t LastEnd(const google::protobuf::RepeatedField<uint32_t>& ends) {
  return ends.empty() ? 0 : ends[ends.size() - 1];
}

// A sample of the batch as it lies in the target of a decoder-only model.
struct Laid {
  // Tokens, and the first of its places whose next token is learnt.
  uint64_t length = 0;
  uint64_t first_loss = 0;
};

Laid LaidOf(const v1::Batch& batch, uint32_t sample) {
  if (sample >= static_cast<uint32_t>(batch.samples_size())) return {};
  const v1::Sample& tokens = batch.samples(static_cast<int>(sample));
  const uint64_t input = tokens.input_tokens();
  return {input + tokens.target_tokens(), std::max<uint64_t>(input, 1) - 1};
}

// The samples of one row, places of the micro-batch's list.
struct RowSamples {
  int begin = 0;
  int end = 0;
};

std::vector<RowSamples> RowSamplesOf(const v1::MicroBatch& micro_batch) {
  std::vector<RowSamples> rows;
  const int samples = micro_batch.samples_size();
  if (micro_batch.layout() != v1::LAYOUT_CONCATENATED) {
    for (int i = 0; i < samples; ++i) rows.push_back({i, i + 1});
    return rows;
  }
  const auto& ends = micro_batch.row_samples();
  for (int row = 0; row + 1 < ends.size(); ++row) {
    const int begin = static_cast<int>(std::min<uint32_t>(ends[row], samples));
    const int end = static_cast<int>(std::min<uint32_t>(ends[row + 1], samples));
    rows.push_back({begin, std::max(begin, end)});
  }
  return rows;
}

// Adds what each rank of the span has of one row of a decoder-only model.
class RowDivision {
 public:
  RowDivision(const v1::Batch& batch, const v1::MicroBatch& micro_batch, const RowSamples& samples,
              uint64_t length)
      : batch_(batch), micro_batch_(micro_batch), samples_(samples), length_(length) {}

  // `part_of`: the part that a chunk of the row is in.
  template <typename PartOfChunk>
  void AddTo(const Span& span, const PartOfChunk& part_of, std::vector<Share>* shares) const {
    if (span.ranks == 1) {
      Share& share = (*shares)[span.first];
      share.target += length_;
      share.part_targets[part_of(0)] += length_;
      share.loss += LossIn(0, length_);
      return;
    }
    const uint64_t chunks = 2 * span.ranks;
    for (uint64_t rank = 0; rank < span.ranks; ++rank) {
      Share& share = (*shares)[span.first + rank];
      const uint64_t low = rank, high = chunks - 1 - rank;
      for (const uint64_t chunk : {low, high}) {
        share.target += Size(chunk, chunks);
        share.part_targets[part_of(chunk)] += Size(chunk, chunks);
        share.loss += LossIn(Begin(chunk, chunks), Begin(chunk + 1, chunks));
      }
      // The queries of its last chunk see all chunks before it; its first one it has itself.
      share.received += Begin(high, chunks) - Size(low, chunks);
      // Ranks behind it need its first chunk; those before it both.
      share.sent += (span.ranks - 1) * Size(low, chunks) + rank * Size(high, chunks);
    }
  }

 private:
  uint64_t Begin(uint64_t chunk, uint64_t chunks) const { return chunk * length_ / chunks; }
  uint64_t Size(uint64_t chunk, uint64_t chunks) const {
    return Begin(chunk + 1, chunks) - Begin(chunk, chunks);
  }

  // Places of the loss in [begin, end) of the row.
  uint64_t LossIn(uint64_t begin, uint64_t end) const {
    uint64_t loss = 0;
    uint64_t start = 0;
    for (int i = samples_.begin; i < samples_.end; ++i) {
      const Laid sample = LaidOf(batch_, micro_batch_.samples(i));
      if (sample.length == 0) continue;
      const uint64_t first = std::max(begin, start + sample.first_loss);
      const uint64_t last = std::min(end, start + sample.length - 1);
      if (first < last) loss += last - first;
      start += sample.length;
    }
    return loss;
  }

  const v1::Batch& batch_;
  const v1::MicroBatch& micro_batch_;
  const RowSamples samples_;
  const uint64_t length_;
};

Share WholeShare(const v1::MicroBatch& micro_batch) {
  Share whole;
  whole.loss = micro_batch.loss_tokens();
  if (micro_batch.layout() == v1::LAYOUT_PACKED) {
    whole.source = LastEnd(micro_batch.source_cu_seqlens());
    whole.target = LastEnd(micro_batch.target_cu_seqlens());
  } else {
    whole.source = uint64_t{micro_batch.rows()} * micro_batch.source_length();
    whole.target = uint64_t{micro_batch.rows()} * micro_batch.target_length();
  }
  return whole;
}

}  // namespace

uint32_t ContextRanks(const v1::Mesh& mesh) { return std::max(mesh.context(), 1U); }

uint32_t TensorRanks(const v1::Mesh& mesh) { return std::max(mesh.tensor(), 1U); }

uint32_t ExpertRanks(const v1::Mesh& mesh) { return std::max(mesh.expert(), 1U); }

std::vector<RowSize> RowsOf(const v1::Batch& batch, const v1::Plan& plan, const v1::MicroBatch& micro_batch) {
  std::vector<RowSize> rows;
  for (const RowSamples& samples : RowSamplesOf(micro_batch)) {
    if (micro_batch.layout() != v1::LAYOUT_PACKED) {
      rows.push_back({micro_batch.source_length(), micro_batch.target_length()});
      continue;
    }
    const uint32_t sample = micro_batch.samples(samples.begin);
    if (!IsT5(plan)) {
      rows.push_back({0, LaidOf(batch, sample).length});
    } else if (sample < static_cast<uint32_t>(batch.samples_size())) {
      const v1::Sample& tokens = batch.samples(static_cast<int>(sample));
      rows.push_back({tokens.input_tokens(), tokens.target_tokens()});
    } else {
      rows.push_back({});
    }
  }
  return rows;
}

bool IsSpanAllowed(const Span& span, uint64_t target, uint32_t contexts) {
  const bool power_of_two = span.ranks > 0 && (span.ranks & (span.ranks - 1)) == 0;
  if (!power_of_two || span.first % span.ranks != 0 || span.first + span.ranks > contexts) return false;
  return span.ranks == 1 || target >= 2 * span.ranks;
}

namespace {

size_t PartsOf(const v1::MicroBatch& micro_batch) {
  return static_cast<size_t>(std::max(1, micro_batch.part_rows_size() - 1));
}

// The part that a chunk of a row is in: as many parts as begin with it or before it, but for the first.
size_t PartOf(const v1::MicroBatch& micro_batch, size_t row, uint64_t chunk) {
  size_t part = 0;
  for (int i = 1; i + 1 < micro_batch.part_rows_size(); ++i) {
    const uint64_t first = i < micro_batch.part_chunks_size() ? micro_batch.part_chunks(i) : 0;
    const uint32_t first_row = micro_batch.part_rows(i);
    if (first_row < row || (first_row == row && first <= chunk)) ++part;
  }
  return part;
}

// With one context rank.
Share WholeInParts(const v1::Batch& batch, const v1::Plan& plan, const v1::MicroBatch& micro_batch) {
  Share whole = WholeShare(micro_batch);
  if (micro_batch.part_rows().empty()) {
    whole.part_targets = {whole.target};
    return whole;
  }
  whole.part_targets.resize(PartsOf(micro_batch));
  const std::vector<RowSize> rows = RowsOf(batch, plan, micro_batch);
  for (size_t row = 0; row < rows.size(); ++row)
    whole.part_targets[PartOf(micro_batch, row, 0)] += rows[row].target;
  return whole;
}

}  // namespace

std::vector<Share> SharesOf(const v1::Batch& batch, const v1::Plan& plan, const v1::MicroBatch& micro_batch,
                            uint32_t contexts) {
  if (contexts == 1) return {WholeInParts(batch, plan, micro_batch)};
  std::vector<Share> shares(contexts);
  for (Share& share : shares) share.part_targets.resize(PartsOf(micro_batch));
  const std::vector<RowSize> rows = RowsOf(batch, plan, micro_batch);
  const std::vector<RowSamples> samples = RowSamplesOf(micro_batch);
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto at = static_cast<int>(row);
    Span span;
    if (at < micro_batch.span_first_size() && at < micro_batch.span_ranks_size())
      span = {micro_batch.span_first(at), micro_batch.span_ranks(at)};
    if (!IsSpanAllowed(span, rows[row].target, contexts)) span = {};
    const auto part_of = [&](uint64_t chunk) { return PartOf(micro_batch, row, chunk); };
    RowDivision(batch, micro_batch, samples[row], rows[row].target).AddTo(span, part_of, &shares);
  }
  return shares;
}

uint64_t TensorPart(uint64_t tokens, uint32_t tensor, uint32_t tensors) {
  const uint64_t each = tokens / tensors;
  return tensor + 1 == tensors ? tokens - each * (tensors - 1) : each;
}

uint64_t KeyValueBytes(const v1::ModelSpec& model, uint64_t tensors) {
  if (model.heads() == 0) return 0;
  const uint64_t heads = model.key_value_heads() > 0 ? model.key_value_heads() : model.heads();
  const uint64_t inner = model.attention_inner() > 0 ? model.attention_inner() : model.hidden();
  return 2 * ((heads + tensors - 1) / tensors) * (inner / model.heads()) * ElementBytes(model.dtype());
}

uint64_t ElementBytes(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT64:
      return 8;
    case v1::DATA_TYPE_FLOAT32:
      return 4;
    case v1::DATA_TYPE_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

}  // namespace penstock::core::verify
