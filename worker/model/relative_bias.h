// T5's relative position bias (Raffel et al., "Exploring the limits of transfer learning", 2020,
// section 2.1): a number for each head and bucket of distances, added to the scores of self-attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/model/attention_shape.h"
#include "worker/model/linear.h"

namespace penstock::worker {

// The bucket of the distance (position of the key - position of the query): one for each small distance, then
// logarithmically wider ones up to `max_distance`, beyond which all are in the last. With two sides, half of
// the buckets are for keys behind the query; with one, such keys count as distance 0.
int64_t RelativeBucket(int64_t distance, bool two_sided, int64_t buckets, int64_t max_distance);

struct RelativeBias {
  // [buckets, heads]
  Parameter table;
  // int64, of the distances from -reach to reach.
  at::Tensor bucket_of_distance;
  int64_t reach = 0;
};

RelativeBias MakeRelativeBias(const Parameter& table, bool two_sided, int64_t max_distance, int64_t reach);

// The bias of the scores of a piece, which is the same for all its neighbours.
//
//   const PieceBias bias(*options.bias, shape, piece);
//   at::Tensor scores = ...;                                 // [heads, queries, keys]
//   scores.add_(bias.Of(first_head, heads));
//   const at::Tensor gradient = bias.NoGradient(heads);
//   gradient.add_(...);
//   bias.AddGradient(gradient, first_head);
//
// Where positions count from the begin of a sample, all scores of a diagonal have one distance: the bias is a
// number for each diagonal, and so is its gradient. In rows of several samples each score has its own.
class PieceBias {
 public:
  PieceBias(const RelativeBias& bias, const AttentionShape& shape, const AttentionPiece& piece);

  // [heads, queries, keys] of AccumulationType, which the caller may change.
  at::Tensor Of(int64_t first_head, int64_t heads) const;
  // Zeros, of the same shape and type.
  at::Tensor NoGradient(int64_t heads) const;
  // Adds to the gradient of the table, where it learns, what was added up in NoGradient.
  void AddGradient(const at::Tensor& gradient, int64_t first_head) const;

 private:
  int64_t diagonals() const { return queries_ + keys_ - 1; }
  // A view of [heads, queries, diagonals], where row i has the diagonals that query i is in from its place
  // queries - 1 - i on: [heads, queries, keys].
  at::Tensor Diagonals(const at::Tensor& rows) const;

  const RelativeBias& bias_;
  const int64_t queries_;
  const int64_t keys_;
  const bool consecutive_;
  // int64: of each diagonal, from the one of the last query and the first key on; or [queries * keys].
  const at::Tensor buckets_;
};

}  // namespace penstock::worker
