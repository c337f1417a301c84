#include "worker/model/attention_shape.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "worker/model/architecture.h"
#include "worker/model/attention.h"
#include "worker/model/divided_shape.h"
#include "worker/model/rotary.h"
#include "worker/program/parts.h"
#include "worker/torch/data_type.h"
#include "worker/torch/to_device.h"

namespace penstock::worker {
namespace {

// Tokens that attend to each other: `length` places in the flat activation, of which the first `filled` are
// tokens of samples.
struct Row {
  int64_t begin = 0;
  int64_t length = 0;
  int64_t filled = 0;
  // Chunks of a row, end to end.
  bool divided = false;
};

// Tokens of a sample on one side. A decoder-only model has them all on the target side.
int64_t SampleTokensOn(Side side, const MicroBatch& shape, const ModelConfig& config, size_t sample) {
  const int64_t input = shape.input_tokens[sample];
  const int64_t target = shape.target_tokens[sample];
  if (config.architecture == Architecture::kGpt) return side == Side::kSource ? 0 : input + target;
  return side == Side::kSource ? input : target;
}

int64_t RowLength(Side side, const MicroBatch& shape) {
  return side == Side::kSource ? shape.source_length : shape.target_length;
}

std::vector<Row> PackedRows(const std::vector<int32_t>& cu_seqlens) {
  std::vector<Row> rows;
  for (size_t i = 1; i < cu_seqlens.size(); ++i) {
    const int64_t length = cu_seqlens[i] - cu_seqlens[i - 1];
    rows.push_back({cu_seqlens[i - 1], length, length});
  }
  return rows;
}

// Of a rectangle whose row r holds the samples from first(r) to first(r + 1).
template <typename First>
std::vector<Row> RectangleRows(Side side, const MicroBatch& shape, const ModelConfig& config, First first) {
  std::vector<Row> rows;
  const int64_t length = RowLength(side, shape);
  for (int64_t r = 0; r < shape.rows; ++r) {
    Row row = {r * length, length, 0};
    for (size_t i = first(r); i < first(r + 1); ++i) row.filled += SampleTokensOn(side, shape, config, i);
    rows.push_back(row);
  }
  return rows;
}

std::vector<Row> RowsOf(Side side, const MicroBatch& shape, const ModelConfig& config) {
  switch (shape.layout) {
    case Layout::kPacked:
      return PackedRows(side == Side::kSource ? shape.source_cu_seqlens : shape.target_cu_seqlens);
    case Layout::kPadded:
      return RectangleRows(side, shape, config, [](int64_t row) { return static_cast<size_t>(row); });
    case Layout::kConcatenated:
      return RectangleRows(side, shape, config, [&](int64_t row) {
        return static_cast<size_t>(shape.row_samples[static_cast<size_t>(row)]);
      });
  }
  return {};
}

// Those that a context rank has a part of, where they lie there. A divided row is filled.
std::vector<Row> RowsOn(Side side, const MicroBatch& shape, const ModelConfig& config,
                        const GroupPlace& place) {
  std::vector<Row> rows = RowsOf(side, shape, config);
  if (place.contexts == 1) return rows;
  std::vector<Row> own;
  size_t last = rows.size();
  for (const RowChunk& chunk : ChunksOf(shape, side, place.context)) {
    if (chunk.row != std::exchange(last, chunk.row)) {
      own.push_back({.begin = own.empty() ? 0 : own.back().begin + own.back().length,
                     .filled = rows[chunk.row].filled,
                     .divided = shape.spans[chunk.row].ranks > 1});
    }
    Row& row = own.back();
    row.length += chunk.length;
    if (row.divided) row.filled = row.length;
  }
  return own;
}

std::vector<int64_t> Offsets(Side side, const MicroBatch& shape, const ModelConfig& config) {
  std::vector<int64_t> offsets;
  const std::vector<Row> rows = RowsOf(side, shape, config);
  if (shape.layout != Layout::kConcatenated) {
    for (const Row& row : rows) offsets.push_back(row.begin);
    return offsets;
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    int64_t offset = rows[r].begin;
    for (auto i = static_cast<size_t>(shape.row_samples[r]);
         i < static_cast<size_t>(shape.row_samples[r + 1]); ++i) {
      offsets.push_back(offset);
      offset += SampleTokensOn(side, shape, config, i);
    }
  }
  return offsets;
}

// Positions start anew with every sample; padding has position 0.
std::vector<int64_t> Positions(Side side, const MicroBatch& shape, const ModelConfig& config,
                               const GroupPlace& place) {
  const int64_t tokens = side == Side::kSource ? SourceTokens(shape) : TargetTokens(shape);
  std::vector<int64_t> positions(static_cast<size_t>(tokens));
  const std::vector<int64_t> offsets = Offsets(side, shape, config);
  for (size_t i = 0; i < offsets.size(); ++i) {
    for (int64_t p = 0; p < SampleTokensOn(side, shape, config, i); ++p) {
      positions[static_cast<size_t>(offsets[i] + p)] = p;
    }
  }
  return ShareOf(std::move(positions), shape, side, place);
}

// Rows of the rotary table. Padding has that of position 0.
std::vector<int64_t> RotaryRows(const MicroBatch& shape, const ModelConfig& config, const GroupPlace& place) {
  std::vector<int64_t> rows(static_cast<size_t>(TargetTokens(shape)));
  const std::vector<int64_t> offsets = Offsets(Side::kTarget, shape, config);
  for (size_t i = 0; i < offsets.size(); ++i) {
    const int64_t tokens = SampleTokensOn(Side::kTarget, shape, config, i);
    for (int64_t p = 0; p < tokens; ++p) {
      rows[static_cast<size_t>(offsets[i] + p)] =
          RotaryRow(config.rotary, config.max_sequence_length, tokens, p);
    }
  }
  return ShareOf(std::move(rows), shape, Side::kTarget, place);
}

// Adds a row to the last piece, where it continues that piece, or as a piece of its own.
void AppendPiece(const AttentionPiece& row, bool alone, std::vector<AttentionPiece>& pieces) {
  if (!alone && !row.divided && !pieces.empty()) {
    AttentionPiece& last = pieces.back();
    if (!last.divided && last.query_length == row.query_length && last.key_stride == row.key_stride &&
        last.key_length == row.key_length &&
        last.query_begin + last.count * last.query_length == row.query_begin &&
        last.key_begin + last.count * last.key_stride == row.key_begin) {
      ++last.count;
      return;
    }
  }
  pieces.push_back(row);
}

int64_t CountTokens(const std::vector<Row>& rows) {
  return rows.empty() ? 0 : rows.back().begin + rows.back().length;
}

// `causal`: keys in padding need not be left out, because they lie behind every token. `alone`: rows differ
// in more than their lengths.
AttentionShape Pair(const std::vector<Row>& queries, const std::vector<Row>& keys, bool causal, bool alone) {
  AttentionShape shape;
  shape.queries = CountTokens(queries);
  shape.keys = CountTokens(keys);
  for (size_t r = 0; r < queries.size(); ++r) {
    const AttentionPiece row = {1,
                                queries[r].begin,
                                queries[r].length,
                                keys[r].begin,
                                keys[r].length,
                                causal ? keys[r].length : keys[r].filled,
                                queries[r].divided};
    if (row.query_length > 0 && row.key_length > 0) AppendPiece(row, alone, shape.pieces);
    shape.all_queries = shape.all_queries && (row.key_length > 0 || row.query_length == 0);
    shape.all_keys =
        shape.all_keys && (row.key_length == row.key_stride) && (row.query_length > 0 || row.key_length == 0);
  }
  return shape;
}

// int32 [rows + 1], and the longest row.
std::pair<at::Tensor, int64_t> BeginsOf(const std::vector<Row>& rows, at::Device device) {
  std::vector<int32_t> begins = {0};
  int64_t longest = 0;
  for (const Row& row : rows) {
    begins.push_back(static_cast<int32_t>(row.begin + row.length));
    longest = std::max(longest, row.length);
  }
  return {StagedFor(device, std::move(begins)), longest};
}

// For the kernel that attends in all rows at once. Not where a row is empty, of which kernels make different
// things.
void AttendInOneCall(const std::vector<Row>& queries, const std::vector<Row>& keys, at::Device device,
                     AttentionShape& shape) {
  if (shape.pieces.empty() || !shape.all_queries || !shape.all_keys) return;
  std::tie(shape.rows.queries, shape.rows.longest_query) = BeginsOf(queries, device);
  std::tie(shape.rows.keys, shape.rows.longest_key) = BeginsOf(keys, device);
  shape.pieces = {{.count = 1,
                   .query_length = shape.queries,
                   .key_stride = shape.keys,
                   .key_length = shape.keys,
                   .divided = shape.exchange.has_value()}};
  for (OtherKeys& others : shape.others) others.piece = 0;
}

// Of a micro-batch without parts, or of one of them, which finds that of its first row.
MicroBatchAttention ShapesOfWhole(const MicroBatch& shape, const ModelConfig& config, at::Device device,
                                  const GroupPlace& place, const CarriedRow& carried = {}) {
  MicroBatchAttention result;
  const std::vector<Row> target = RowsOn(Side::kTarget, shape, config, place);
  const bool decoder_only = config.architecture == Architecture::kGpt;
  // Runs of divided rows, and scores that are capped, need the pieces.
  const bool needs_pieces = config.score_cap > 0 || (config.attention_window > 0 && AnyRowIsDivided(shape));
  const bool in_one_call = shape.layout == Layout::kPacked && !needs_pieces &&
                           FlashAttentionSupports(ToScalarType(config.dtype), device, HeadWidth(config));
  const bool own_positions = !decoder_only && shape.layout == Layout::kConcatenated;
  result.target = Pair(target, target, /*causal=*/true, own_positions);
  if (ArchitectureOf(config).position == Position::kRotary) {
    const std::vector<int64_t> rows = RotaryRows(shape, config, place);
    result.target.rotary_rows = StagedFor(device, std::vector<int32_t>(rows.begin(), rows.end()));
  }
  if (decoder_only) {
    result.target.routed = MakeRoutedSamples(shape, config, device, place);
    if (AnyRowIsDivided(shape)) DivideShape(shape, config, place, device, carried, result.target);
    if (in_one_call) AttendInOneCall(target, target, device, result.target);
    return result;
  }
  const std::vector<Row> source = RowsOn(Side::kSource, shape, config, place);
  result.source = Pair(source, source, /*causal=*/false, own_positions);
  result.cross = Pair(target, source, /*causal=*/false, /*alone=*/false);
  if (in_one_call) AttendInOneCall(target, source, device, result.cross);
  if (own_positions) {
    result.source.query_positions = Positions(Side::kSource, shape, config, place);
    result.source.key_positions = result.source.query_positions;
    result.target.query_positions = Positions(Side::kTarget, shape, config, place);
    result.target.key_positions = result.target.query_positions;
  }
  return result;
}

void MoveToDevice(at::Device device, AttentionShape& shape) {
  std::vector<at::Tensor*> tensors = {&shape.rotary_rows, &shape.rows.queries, &shape.rows.keys};
  if (shape.exchange.has_value()) {
    KeyExchange& exchange = *shape.exchange;
    for (at::Tensor* tensor :
         {&exchange.divided_rows, &exchange.sent_places, &exchange.sent_rows, &exchange.carried_rows,
          &exchange.carried_places, &exchange.own_places, &exchange.order}) {
      tensors.push_back(tensor);
    }
  }
  if (shape.routed.has_value()) {
    RoutedSamples& routed = *shape.routed;
    for (at::Tensor* tensor : {&routed.sample_of_token, &routed.tokens, &routed.capacities})
      tensors.push_back(tensor);
    if (routed.all.has_value()) {
      tensors.push_back(&routed.all->sample_of_token);
      tensors.push_back(&routed.all->places);
    }
  }
  for (at::Tensor* tensor : tensors) {
    if (tensor->defined()) *tensor = Unstaged(*tensor, device);
  }
}

}  // namespace

int64_t SourceTokens(const MicroBatch& shape) {
  if (shape.layout != Layout::kPacked) return shape.rows * shape.source_length;
  return shape.source_cu_seqlens.empty() ? 0 : shape.source_cu_seqlens.back();
}

int64_t TargetTokens(const MicroBatch& shape) {
  if (shape.layout != Layout::kPacked) return shape.rows * shape.target_length;
  return shape.target_cu_seqlens.empty() ? 0 : shape.target_cu_seqlens.back();
}

int64_t SourceTokens(const MicroBatch& shape, const GroupPlace& place) {
  return place.contexts == 1 ? SourceTokens(shape) : TokensOn(shape, Side::kSource, place.context);
}

int64_t TargetTokens(const MicroBatch& shape, const GroupPlace& place) {
  return place.contexts == 1 ? TargetTokens(shape) : TokensOn(shape, Side::kTarget, place.context);
}

std::vector<int64_t> SourceOffsets(const MicroBatch& shape, const ModelConfig& config) {
  return Offsets(Side::kSource, shape, config);
}

std::vector<int64_t> TargetOffsets(const MicroBatch& shape, const ModelConfig& config) {
  return Offsets(Side::kTarget, shape, config);
}

MicroBatchAttention MakeAttentionShapes(const MicroBatch& shape, const ModelConfig& config, at::Device device,
                                        const GroupPlace& place) {
  if (PartsOf(shape) == 0) return ShapesOfWhole(shape, config, device, place);
  MicroBatchAttention result;
  if (shape.whole_backward) result = ShapesOfWhole(shape, config, device, place);
  result.whole_backward = shape.whole_backward;
  int64_t queries = 0;
  int64_t keys = 0;
  CarriedRow carried;
  for (size_t part = 0; part < PartsOf(shape); ++part) {
    const MicroBatch part_shape = PartOf(shape, part);
    AttentionShape& of_part =
        result.target_parts.emplace_back(ShapesOfWhole(part_shape, config, device, place, carried).target);
    carried = CarriedOn(part_shape, place, carried);
    if (of_part.routed.has_value())
      of_part.routed->first_sample = static_cast<int64_t>(FirstSampleOf(shape, part));
    of_part.queries_before = queries;
    queries += of_part.queries;
    keys += of_part.keys;
  }
  for (AttentionShape& part : result.target_parts) part.queries_of_parts = queries;
  result.target.queries = queries;
  result.target.keys = keys;
  return result;
}

MicroBatchAttention ToDevice(MicroBatchAttention attention, at::Device device) {
  for (AttentionShape* shape : {&attention.source, &attention.target, &attention.cross})
    MoveToDevice(device, *shape);
  for (AttentionShape& part : attention.target_parts) MoveToDevice(device, part);
  return attention;
}

}  // namespace penstock::worker
