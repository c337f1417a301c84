// What each context rank of a stage group has of a micro-batch, when its rows are divided over spans of them.
//
//   std::vector<Share> shares;
//   SharesOf(samples, tokens, layout, row, spans, nodes, contexts, &shares);
//
// A row is a sample of the packed layout, or a row of the others'. Over a span of k > 1 context ranks it is
// cut into 2k chunks, and the j-th rank of the span has chunks j and 2k - 1 - j, so that each has the same
// part of causal attention (execution.md, section 10). Decoder-only models.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/topology/nodes.h"

namespace penstock::core {

struct Share {
  // Of its own tokens; of a row over k ranks a k-th of the square.
  TokenSums sums;
  // That part of sums.target_square which is of divided rows.
  double divided_square = 0;
  // Lengths of the divided rows that it has a part of: the keys that its queries see at most.
  int64_t divided_tokens = 0;
  // And of those that are cut between parts of the micro-batch: keys that are kept from one to the next.
  int64_t cut_tokens = 0;
  // Tokens whose keys and values it sends and receives in a forward pass, by Link.
  std::array<int64_t, kLinks> sent = {};
  std::array<int64_t, kLinks> received = {};

  bool exchanges() const { return divided_tokens > 0; }
};

// Where chunk `index` of a row over `ranks` context ranks begins; 2 * ranks is the last one's end.
inline int64_t ChunkBegin(int64_t length, int32_t ranks, int64_t index) {
  return index * length / (2 * int64_t{ranks});
}

// A row of a micro-batch: so many tokens, and the samples that lie in it one after another.
struct Row {
  int64_t length = 0;
  // AttentionWindows::LessSquare of the length.
  double less_square = 0;
  absl::Span<const uint32_t> samples;
};

// In the order of the micro-batch. `samples` must outlive them.
std::vector<Row> RowsOf(absl::Span<const uint32_t> samples, absl::Span<const SampleTokens> tokens,
                        Layout layout, RowLengths row);

// What one rank of a stage group has that is its context rank alone: all of it.
Share WholeShare(const TokenSums& sums);

// Chunks begin, ..., end - 1 of a divided row; an end of 0: all from `begin` on.
struct ChunkRange {
  int32_t begin = 0;
  int32_t end = 0;

  bool is_all() const { return begin == 0 && end == 0; }
};

// One for each context rank; `spans` has one for each row. Layouts count as packed. `chunks`: of a part that
// is cut inside of rows, what it has of each row; empty: all. Keys go to a rank with the part in which their
// first query there is.
void SharesOf(absl::Span<const Row> rows, absl::Span<const SampleTokens> tokens, absl::Span<const Span> spans,
              const Nodes& nodes, int contexts, std::vector<Share>* shares,
              absl::Span<const ChunkRange> chunks = {});

}  // namespace penstock::core
