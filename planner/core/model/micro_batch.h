// Micro-batches, and the sums over their rows that all costs are functions of.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/model/types.h"

namespace penstock::core {

// Sums over the rows that a micro-batch computes, padding included. Sums of squares are exact below 2^53.
// Target squares are less what windows of attention take off.
struct TokenSums {
  // A rectangle is kPadded, whatever lies in it: concatenated rows too.
  Layout layout = Layout::kPacked;
  int32_t rows = 0;
  // Of a rectangle.
  int32_t source_length = 0;
  int32_t target_length = 0;
  double source = 0;
  double target = 0;
  double source_square = 0;
  double target_square = 0;
  double cross = 0;
  // Positions that the loss counts.
  double loss = 0;
  // Of a context rank's share: the rows of it that are divided.
  int32_t divided_rows = 0;

  // Rows whose attention is computed one by one.
  int32_t packed_rows() const { return layout == Layout::kPacked ? rows : 0; }
  // Squares of the lengths that attention is called with: of each of these rows, and of one row of a
  // rectangle.
  double source_call_square() const { return OfCalls(source_square); }
  double target_call_square() const { return OfCalls(target_square); }

 private:
  double OfCalls(double square) const {
    return layout == Layout::kPacked || rows == 0 ? square : square / rows;
  }
};

// What a head that runs at loss positions only computes.
inline TokenSums LossPositions(const TokenSums& sums) {
  TokenSums positions;
  positions.rows = sums.rows;
  positions.target = sums.loss;
  positions.loss = sums.loss;
  return positions;
}

// One side alone: what an embedding of its tokens computes.
inline TokenSums SourceSide(const TokenSums& sums) {
  TokenSums side;
  side.source = sums.source;
  side.source_square = sums.source_square;
  return side;
}
inline TokenSums TargetSide(const TokenSums& sums) {
  TokenSums side;
  side.target = sums.target;
  side.target_square = sums.target_square;
  return side;
}

// A rectangle of `rows` samples of the given lengths, `loss` of whose positions the loss counts;
// `less_square`: AttentionWindows::LessSquare of the target length.
inline TokenSums PaddedSums(int32_t rows, int32_t source_length, int32_t target_length, double loss = 0,
                            double less_square = 0) {
  TokenSums sums;
  sums.layout = Layout::kPadded;
  sums.rows = rows;
  sums.source_length = source_length;
  sums.target_length = target_length;
  sums.source = static_cast<double>(rows) * source_length;
  sums.target = static_cast<double>(rows) * target_length;
  sums.source_square = sums.source * source_length;
  sums.target_square = sums.target * target_length - rows * less_square;
  sums.cross = sums.target * source_length;
  sums.loss = loss;
  return sums;
}

// Adds one sample to a packed micro-batch.
inline void AddPacked(const SampleTokens& sample, TokenSums* sums) {
  const double source = sample.source;
  const double target = sample.target;
  ++sums->rows;
  sums->source += source;
  sums->target += target;
  sums->source_square += source * source;
  sums->target_square += target * target - sample.less_square;
  sums->cross += source * target;
  sums->loss += sample.loss;
}

// Where the rows of a concatenated micro-batch end: positions in `samples`, ascending. The samples fill the
// rows in their order; a row ends before the sample that no longer fits, in source or in target. Calls
// `end_row` once a row.
template <typename EndRow>
void ForEachRow(absl::Span<const uint32_t> samples, absl::Span<const SampleTokens> tokens, RowLengths row,
                EndRow end_row) {
  int64_t source = 0;
  int64_t target = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const SampleTokens& sample = tokens[samples[i]];
    if (i > 0 && (source + sample.source > row.source || target + sample.target > row.target)) {
      end_row(i);
      source = 0;
      target = 0;
    }
    source += sample.source;
    target += sample.target;
  }
  if (!samples.empty()) end_row(samples.size());
}

// Rows of one length each, with attention across the row: what a padded rectangle of that shape computes.
inline TokenSums ConcatenatedSums(absl::Span<const uint32_t> samples, absl::Span<const SampleTokens> tokens,
                                  RowLengths row) {
  int32_t rows = 0;
  ForEachRow(samples, tokens, row, [&](size_t) { ++rows; });
  double loss = 0;
  for (const uint32_t sample : samples) loss += tokens[sample].loss;
  return PaddedSums(rows, row.source, row.target, loss, row.less_square);
}

// Sums of the given samples (indices into `tokens`) in a layout. `row`: of the concatenated layout.
inline TokenSums SumsOf(absl::Span<const uint32_t> samples, absl::Span<const SampleTokens> tokens,
                        Layout layout, RowLengths row = {}) {
  if (layout == Layout::kConcatenated) return ConcatenatedSums(samples, tokens, row);
  if (layout == Layout::kPadded) {
    uint32_t source = 0;
    uint32_t target = 0;
    double loss = 0;
    double less_square = 0;
    for (uint32_t sample : samples) {
      if (tokens[sample].source > source) source = tokens[sample].source;
      if (tokens[sample].target > target) {
        target = tokens[sample].target;
        less_square = tokens[sample].less_square;
      }
      loss += tokens[sample].loss;
    }
    return PaddedSums(static_cast<int32_t>(samples.size()), static_cast<int32_t>(source),
                      static_cast<int32_t>(target), loss, less_square);
  }
  TokenSums sums;
  for (uint32_t sample : samples) AddPacked(tokens[sample], &sums);
  return sums;
}

// The context ranks of a stage group that a row is divided over: first, first + 1, ..., `ranks` of them, a
// power of two that divides `first`.
struct Span {
  int32_t first = 0;
  int32_t ranks = 1;
};

// Samples that go through the pipeline together, in the order in which they lie in memory.
struct MicroBatch {
  std::vector<uint32_t> samples;
  Layout layout = Layout::kPacked;
  // Of the concatenated layout.
  RowLengths row;
  // Of each row; empty where stage groups have one context rank.
  std::vector<Span> spans;
  // The parts that passes go through in turn: where their rows begin, and where the last one's end. Empty: it
  // is one.
  std::vector<int32_t> part_rows;
  // Of each of these, the chunk of the row that a part begins with; empty: parts are whole rows.
  std::vector<int32_t> part_chunks;
  // Forward passes alone go in them.
  bool whole_backward = false;
  // On each stage; empty until memory has been fitted.
  std::vector<StageRecompute> recompute;
};

// Micro-batches of each replica in the order in which they enter the pipeline.
using Assignment = std::vector<std::vector<MicroBatch>>;

}  // namespace penstock::core
