// The tokens of a micro-batch that a context rank has, and what context ranks send each other before causal
// self-attention (proto/penstock/v1/execution.md, placement).
//
// A row (packed: a sample) lies whole on one context rank, or is divided over the k ranks of its span: into
// 2k chunks, of which rank j of the span has j and 2k - 1 - j, so that all have as much causal attention to
// compute.
//
//   for (const RowChunk& chunk : ChunksOf(shape, Side::kTarget, context)) ...   // end to end, they are its
//   tokens for (const RowChunk& chunk : ChunksSent(shape, from, to)) ...               // keys and values
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

// A decoder-only model has all tokens on the target side.
enum class Side : uint8_t { kSource, kTarget };

// `length` tokens of a row from its place `first` on, padding included.
struct RowChunk {
  size_t row = 0;
  int64_t first = 0;
  int64_t length = 0;

  bool operator==(const RowChunk&) const = default;
};

// Of each row: its tokens, padding included.
std::vector<int64_t> RowLengths(const MicroBatch& shape, Side side);

// That there is a span for each row, an aligned run of 1, 2, 4, ... of the `contexts` ranks; none where there
// is one context rank. Of those of several ranks: that no chunk of `side` is empty. Possible errors:
// INVALID_ARGUMENT (names the span).
absl::Status CheckSpans(const MicroBatch& shape, Side side, int contexts);

// The functions below want a shape whose spans are in order. Without spans context rank 0 has everything. Of
// a part that is cut inside of a row they give what the part has.

// What a context rank has, in the order in which it lies there: of each row nothing, the row, or its two
// chunks. Two chunks of one row are not joined, even where they are neighbours.
std::vector<RowChunk> ChunksOf(const MicroBatch& shape, Side side, int context);
int64_t TokensOn(const MicroBatch& shape, Side side, int context);

// The same as runs of the flat activation of the whole micro-batch, neighbours joined.
struct TokenRun {
  int64_t begin = 0;
  int64_t length = 0;

  bool operator==(const TokenRun&) const = default;
};
std::vector<TokenRun> RunsOf(const MicroBatch& shape, Side side, int context);

// Of a value for each token of the whole micro-batch: those of the tokens of a context rank.
template <typename Value>
std::vector<Value> ShareOf(std::vector<Value> whole, const MicroBatch& shape, Side side,
                           const GroupPlace& place) {
  if (place.contexts == 1) return whole;
  std::vector<Value> share;
  for (const TokenRun& run : RunsOf(shape, side, place.context)) {
    const auto begin = whole.begin() + run.begin;
    share.insert(share.end(), begin, begin + run.length);
  }
  return share;
}

// Of which samples a context rank may have tokens (concatenated: all of a row that it has a part of).
std::vector<bool> SamplesOn(const MicroBatch& shape, int context);

// Whether any row lies on several context ranks: then all ranks of the stage group make every exchange, even
// those that have nothing to send.
bool AnyRowIsDivided(const MicroBatch& shape);

// The chunks of the target side whose keys and values `from` sends to `to`, in order: of every row that both
// have a part of, those that a query on `to` comes behind. Every chunk lies on `from`. Of a part: those whose
// first such query is in it. They may be of an earlier part.
std::vector<RowChunk> ChunksSent(const MicroBatch& shape, int from, int to);

}  // namespace penstock::worker
