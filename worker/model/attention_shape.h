// Which tokens of a micro-batch attend to which: its samples and rows as rectangles.
//
// Every layout comes down to pieces: so many neighbours, each with as many queries and as many keys. A
// piece's queries and keys are rectangles in the flat activations, so that no mask but the causal one is
// needed. Of a row that is divided over context ranks, the chunks that a rank has are such a piece: they lie
// in the order of the row. What its queries see on other ranks is a rectangle more, in which nothing is
// masked.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "worker/comm/shard.h"
#include "worker/model/key_exchange.h"
#include "worker/model/routed_samples.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

// `count` neighbours of one shape: a sample each, or a row of concatenated samples.
struct AttentionPiece {
  int64_t count = 0;
  // The first query in the flat activation; the neighbours' queries follow each other.
  int64_t query_begin = 0;
  int64_t query_length = 0;
  // Likewise, but keys come every `key_stride` tokens: what is behind the first `key_length` is padding.
  int64_t key_begin = 0;
  int64_t key_stride = 0;
  int64_t key_length = 0;
  // A part of a divided row; the count is 1.
  bool divided = false;
};

// Queries of a piece over keys that other context ranks have, all of which lie before them.
struct OtherKeys {
  // Of AttentionShape.pieces.
  size_t piece = 0;
  // In the flat activation.
  int64_t query_begin = 0;
  int64_t query_length = 0;
  // Among the rows of ReceivedKeys.
  int64_t key_begin = 0;
  int64_t key_length = 0;
};

// Consecutive tokens of a divided row: queries of a piece, or keys.
struct RowRun {
  // Queries and own keys: in the piece. Received keys: among the rows of ReceivedKeys.
  int64_t begin = 0;
  int64_t length = 0;
  // In the row.
  int64_t position = 0;
  bool received = false;
};

// A piece that is a part of a divided row, for layers with windows: its runs, and all keys that this rank has
// of the row.
struct DividedRow {
  size_t piece = 0;
  std::vector<RowRun> queries;
  std::vector<RowRun> keys;
};

// Where rows begin, for a kernel that attends in all of them at once. Undefined where it is asked for each
// piece.
struct RowBegins {
  // int32 [rows + 1] of queries and of keys; no row is empty.
  at::Tensor queries;
  at::Tensor keys;
  int64_t longest_query = 0;
  int64_t longest_key = 0;

  bool defined() const { return queries.defined(); }
};

struct AttentionShape {
  // Without those that have no query or no key.
  std::vector<AttentionPiece> pieces;
  // Tokens of the flat activations. Of a part of a micro-batch, the parts before it and all parts have so
  // many.
  int64_t queries = 0;
  int64_t queries_before = 0;
  std::optional<int64_t> queries_of_parts = {};
  int64_t keys = 0;
  // Whether every query, and every key, is in a piece.
  bool all_queries = true;
  bool all_keys = true;
  // Where any row of the micro-batch is divided, on this rank or not.
  std::optional<KeyExchange> exchange;
  // Where a part ends inside of a row that this rank has a part of.
  std::optional<KeptForNextPart> kept;
  std::vector<OtherKeys> others;
  // Of models with windows.
  std::vector<DividedRow> divided_rows;
  // Packed attention without a bias on a GPU: of the only piece, which is all rows.
  RowBegins rows;
  // Concatenated rows: of each query and of each key, its position in its sample. Empty elsewhere: positions
  // count from the begin of a piece.
  std::vector<int64_t> query_positions;
  std::vector<int64_t> key_positions;
  // Of models with rotary positions: int32 [queries], each token's row of the table (RotaryRow).
  at::Tensor rotary_rows;
  // Of models whose routers have losses.
  std::optional<RoutedSamples> routed;

  ListedRows listed_queries() const {
    return {queries_before, queries_before + queries, queries_of_parts.value_or(queries)};
  }
};

// All attention of a micro-batch. `source` and `cross` are empty for a decoder-only model.
struct MicroBatchAttention {
  AttentionShape source;
  AttentionShape target;
  AttentionShape cross;
  // Of a micro-batch in parts: of each, whose tokens follow those of the parts before it. `target` then has
  // nothing but the numbers of all tokens, unless backward passes are whole and need all of it.
  std::vector<AttentionShape> target_parts = {};
  bool whole_backward = false;

  // Whether backward passes go in parts, too.
  bool backward_in_parts() const { return !target_parts.empty() && !whole_backward; }
};

// Tokens computed, padding included: by the whole stage group, and by a context rank (share.h).
int64_t SourceTokens(const MicroBatch& shape);
int64_t TargetTokens(const MicroBatch& shape);
int64_t SourceTokens(const MicroBatch& shape, const GroupPlace& place);
int64_t TargetTokens(const MicroBatch& shape, const GroupPlace& place);

// Where each sample's tokens begin in the undivided flat source and target activations.
std::vector<int64_t> SourceOffsets(const MicroBatch& shape, const ModelConfig& config);
std::vector<int64_t> TargetOffsets(const MicroBatch& shape, const ModelConfig& config);

// The encoder attends to every token of the sample (or row) that is no padding, the decoder to those before,
// and to the encoder's of the same sample (or row). The tensors are staged for the device (to_device.h). Any
// thread; throws what LibTorch throws.
MicroBatchAttention MakeAttentionShapes(const MicroBatch& shape, const ModelConfig& config, at::Device device,
                                        const GroupPlace& place = {});

// The same with its tensors on the device.
MicroBatchAttention ToDevice(MicroBatchAttention attention, at::Device device);

}  // namespace penstock::worker
