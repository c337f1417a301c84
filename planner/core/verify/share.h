// Which tokens of a micro-batch each context rank of a stage group has (execution.md, section 10).
//
// A plan may be damaged: a span that is not allowed (rule 7) counts as one of the first context rank alone,
// and nothing here is larger than the messages that it is computed from.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/v1/plan.pb.h"

namespace penstock::core::verify {

// A run of context ranks: first, first + 1, ..., `ranks` of them.
struct Span {
  uint64_t first = 0;
  uint64_t ranks = 1;
};

// What a row of a micro-batch computes, tokens: a sample (PACKED), or a row of the rectangle.
struct RowSize {
  uint64_t source = 0;
  uint64_t target = 0;
};

// What one context rank has, tokens.
struct Share {
  // Computed, padding included.
  uint64_t source = 0;
  uint64_t target = 0;
  // Places that the loss counts.
  uint64_t loss = 0;
  // Keys and values that it sends to other context ranks, and receives from them, in one layer of a forward
  // pass.
  uint64_t sent = 0;
  uint64_t received = 0;
  // Of `target`, those of each part that passes go through in turn: one part at least.
  std::vector<uint64_t> part_targets;
};

// mesh.context and mesh.tensor, 0 standing for 1.
uint32_t ContextRanks(const v1::Mesh& mesh);
uint32_t TensorRanks(const v1::Mesh& mesh);
uint32_t ExpertRanks(const v1::Mesh& mesh);

// The rows of a micro-batch in order; its samples must be in the batch, others count as empty.
std::vector<RowSize> RowsOf(const v1::Batch& batch, const v1::Plan& plan, const v1::MicroBatch& micro_batch);

// Whether a row of so many target tokens may have this span of `contexts` ranks.
bool IsSpanAllowed(const Span& span, uint64_t target, uint32_t contexts);

// One for each of `contexts` context ranks. With one context rank it is the whole micro-batch.
std::vector<Share> SharesOf(const v1::Batch& batch, const v1::Plan& plan, const v1::MicroBatch& micro_batch,
                            uint32_t contexts);

// Of `tokens` of a context rank those of tensor rank `tensor` between layers: equal parts, and the rest for
// the last one.
uint64_t TensorPart(uint64_t tokens, uint32_t tensor, uint32_t tensors);

// Keys and values of a token in one layer of one tensor rank, bytes.
uint64_t KeyValueBytes(const v1::ModelSpec& model, uint64_t tensors);

// Of an element of the model's number format; 0 for one that is not known.
uint64_t ElementBytes(v1::DataType dtype);

}  // namespace penstock::core::verify
