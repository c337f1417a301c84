#include "worker/model/embedding.h"

#include <ATen/ATen.h>

#include <optional>

namespace penstock::worker {
namespace {

// Adds each row to the row of the sum that its index names, without a tensor of the table's size.
void AddRows(const at::Tensor& sum, const at::Tensor& index, const at::Tensor& rows) {
  if (sum.is_cpu()) {
    sum.index_add_(0, index, rows);
  } else {
    // Sorts the indices: the same bits in every run, which index_add_ does not promise on a GPU.
    c10::List<std::optional<at::Tensor>> indices;
    indices.push_back(index);
    sum.index_put_(indices, rows, /*accumulate=*/true);
  }
}

// Of this rank's rows of the table; zeros where another rank has the token.
at::Tensor OwnRows(const EmbeddingPart& part, const at::Tensor& ids) {
  if (!part.vocabulary.divided()) return at::embedding(part.token.value, ids);
  return at::embedding(part.token.value, part.vocabulary.RowsOf(ids))
      .masked_fill_(part.vocabulary.IsElsewhere(ids).unsqueeze(1), 0);
}

// Of all tokens, where the table is divided. Writes to `gradient`.
void AddToOwnRows(const EmbeddingPart& part, const at::Tensor& ids, at::Tensor gradient) {
  gradient.masked_fill_(part.vocabulary.IsElsewhere(ids).unsqueeze(1), 0);
  AddRows(part.token.gradient, part.vocabulary.RowsOf(ids), gradient.to(part.token.gradient.scalar_type()));
}

at::Tensor OwnPositions(const TokenRows& rows, const TokenSequence& tokens) {
  return tokens.positions.narrow(0, rows.own().begin, rows.own().size());
}

}  // namespace

at::Tensor EmbeddingForward(const EmbeddingPart& part, const TokenRows& rows, const TokenSequence& tokens) {
  at::Tensor output = rows.Sum(OwnRows(part, tokens.ids));
  if (part.position.value.defined())
    output.add_(at::embedding(part.position.value, OwnPositions(rows, tokens)));
  if (part.scale != 1) output.mul_(part.scale);
  return output;
}

void EmbeddingBackward(const EmbeddingPart& part, const TokenRows& rows, const TokenSequence& tokens,
                       const at::Tensor& output_gradient) {
  if (!part.token.learns()) return;
  const at::Tensor scaled = part.scale == 1 ? output_gradient : output_gradient * part.scale;
  const at::Tensor own = scaled.to(part.token.gradient.scalar_type());
  if (part.vocabulary.divided()) {
    AddToOwnRows(part, tokens.ids, rows.Gather(scaled));
  } else {
    AddRows(part.token.gradient, tokens.ids, own);
  }
  if (part.position.value.defined()) AddRows(part.position.gradient, OwnPositions(rows, tokens), own);
}

}  // namespace penstock::worker
