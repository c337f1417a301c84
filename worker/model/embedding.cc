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

}  // namespace

at::Tensor EmbeddingForward(const EmbeddingPart& part, const TokenSequence& tokens) {
  at::Tensor output = at::embedding(part.token.value, tokens.ids);
  if (part.position.value.defined()) output.add_(at::embedding(part.position.value, tokens.positions));
  return output;
}

void EmbeddingBackward(const EmbeddingPart& part, const TokenSequence& tokens,
                       const at::Tensor& output_gradient) {
  const at::Tensor rows = output_gradient.to(part.token.gradient.scalar_type());
  AddRows(part.token.gradient, tokens.ids, rows);
  if (part.position.value.defined()) AddRows(part.position.gradient, tokens.positions, rows);
}

}  // namespace penstock::worker
