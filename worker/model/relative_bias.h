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

// [queries * keys], int64: the buckets of a piece, whose neighbours all have the same.
at::Tensor PieceBuckets(const RelativeBias& bias, const AttentionShape& shape, const AttentionPiece& piece);

// Of `heads` heads from `first_head`: [heads, queries, keys] of AccumulationType.
at::Tensor PieceBias(const RelativeBias& bias, const AttentionPiece& piece, const at::Tensor& buckets,
                     int64_t first_head, int64_t heads);

// Adds the gradient of the bias of some heads from `first_head`, [heads, queries, keys], to that of the
// table.
void AddBiasGradient(const RelativeBias& bias, const at::Tensor& buckets, const at::Tensor& gradient,
                     int64_t first_head);

}  // namespace penstock::worker
