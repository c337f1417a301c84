#include "worker/model/attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "worker/model/attention_kernel.h"
#include "worker/model/biased_attention.h"
#include "worker/model/divided_attention.h"

namespace penstock::worker {
namespace {

// [count * stride, heads * width] from `begin` to [count, heads, length, width]; a view.
at::Tensor Heads(const at::Tensor& flat, int64_t heads, int64_t begin, int64_t count, int64_t stride,
                 int64_t length) {
  return flat.narrow(0, begin, count * stride)
      .view({count, stride, heads, flat.size(1) / heads})
      .narrow(1, 0, length)
      .transpose(1, 2);
}

at::Tensor QueryHeads(const at::Tensor& flat, int64_t heads, const AttentionPiece& piece) {
  return Heads(flat, heads, piece.query_begin, piece.count, piece.query_length, piece.query_length);
}

at::Tensor KeyHeads(const at::Tensor& flat, int64_t heads, const AttentionPiece& piece) {
  return Heads(flat, heads, piece.key_begin, piece.count, piece.key_stride, piece.key_length);
}

AttentionOperands PieceOperands(const AttentionOperands& flat, const AttentionOptions& options,
                                const AttentionPiece& piece) {
  return {QueryHeads(flat.query, options.heads, piece), KeyHeads(flat.key, options.key_value_heads, piece),
          KeyHeads(flat.value, options.key_value_heads, piece)};
}

// Kernels that come with autograd: of the GPU, in float32 and float64. Keeps the graph in `memory`, where
// that is given.
template <typename Kernel>
at::Tensor GraphForward(const AttentionOperands& operands, AttentionMemory::Piece* memory,
                        const Kernel& kernel) {
  if (memory == nullptr) return kernel(operands);
  const at::AutoGradMode with_graph(true);
  memory->leaves = {MakeLeaf(operands.query), MakeLeaf(operands.key), MakeLeaf(operands.value)};
  const at::Tensor output = kernel(memory->leaves);
  memory->end = GraphEnd(output);
  return output.detach();
}

void GraphBackward(AttentionMemory::Piece& memory, const at::Tensor& gradient,
                   const AttentionOperands& gradients) {
  memory.end.Backward(gradient);
  gradients.query.copy_(memory.leaves.query.grad());
  gradients.key.copy_(memory.leaves.key.grad());
  gradients.value.copy_(memory.leaves.value.grad());
}

at::Tensor Kernel(const AttentionOptions& options, const AttentionOperands& piece) {
  return at::scaled_dot_product_attention(piece.query, piece.key, piece.value, /*attn_mask=*/{},
                                          /*dropout_p=*/0.0, options.causal, options.scale,
                                          /*enable_gqa=*/options.heads > options.key_value_heads);
}

// What stays the same over the pieces of a call.
struct Call {
  const AttentionOptions& options;
  const AttentionShape& shape;
  // Keys and values that others send, and in the backward pass their gradients.
  ArrivingKeys& received;
  ReceivedKeys gradients;
};

// On a GPU, where nothing is merged, no kernel gives its sums, and the one with a graph has all rules.
bool HasGraph(const Call& call, const AttentionOperands& operands) {
  const at::Tensor& query = operands.query;
  return !query.is_cpu() && !call.shape.exchange.has_value() && call.options.window == 0 &&
         call.options.score_cap == 0 &&
         !FlashAttentionSupports(query.scalar_type(), query.device(), query.size(3));
}

at::Tensor PieceForward(const Call& call, size_t index, const AttentionOperands& operands,
                        AttentionMemory::Piece* memory) {
  if (call.options.bias != nullptr) {
    return BiasedForward(call.options, call.shape, call.shape.pieces[index], operands,
                         memory == nullptr ? nullptr : &memory->log_sums);
  }
  if (HasGraph(call, operands)) {
    return GraphForward(operands, memory,
                        [&](const AttentionOperands& leaves) { return Kernel(call.options, leaves); });
  }
  KernelResult result = DividedForward(call.options, call.shape, index, operands, call.received);
  if (memory != nullptr) memory->log_sums = std::move(result.log_sums);
  return result.output;
}

// A piece in the backward pass.
struct PieceGradients {
  AttentionOperands operands;
  at::Tensor attended;
  // Of `attended`, and of the operands.
  at::Tensor gradient;
  AttentionOperands gradients;
};

// What the forward pass did not keep of a piece.
void Remember(const Call& call, size_t index, const AttentionOperands& operands,
              AttentionMemory::Piece& memory) {
  if (!memory.log_sums.defined() && !memory.end.defined()) PieceForward(call, index, operands, &memory);
}

void ReceivedPieceBackward(const Call& call, size_t index, const PieceGradients& piece,
                           AttentionMemory::Piece& memory) {
  Remember(call, index, piece.operands, memory);
  ReceivedBackward(call.options, call.shape, index, piece.operands, call.received,
                   {piece.attended, memory.log_sums}, piece.gradient, piece.gradients, call.gradients);
}

// Of a divided piece, what ReceivedPieceBackward has left.
void PieceBackward(const Call& call, size_t index, const PieceGradients& piece,
                   AttentionMemory::Piece memory) {
  if (call.options.bias != nullptr) {
    BiasedBackward(call.options, call.shape, call.shape.pieces[index], piece.operands, piece.attended,
                   memory.log_sums, piece.gradient, piece.gradients);
    return;
  }
  Remember(call, index, piece.operands, memory);
  if (HasGraph(call, piece.operands)) {
    GraphBackward(memory, piece.gradient, piece.gradients);
  } else {
    OwnBackward(call.options, call.shape, index, piece.operands, {piece.attended, memory.log_sums},
                piece.gradient, piece.gradients);
  }
}

ArrivingKeys Receive(const AttentionOptions& options, const AttentionShape& shape,
                     const AttentionOperands& operands, CarriedKeys carried = {}) {
  if (!shape.exchange.has_value()) return ArrivingKeys();
  return StartKeys(*options.group, *shape.exchange, operands.key, operands.value, std::move(carried));
}

// Pieces that are divided need what others send, and the rest hides how long that takes.
template <typename Run>
void ForEachPiece(const AttentionShape& shape, bool divided, const Run& run) {
  for (size_t i = 0; i < shape.pieces.size(); ++i) {
    if (shape.pieces[i].divided == divided) run(i);
  }
}

// Zeros where no piece has a query or a key.
void PrepareGradients(const AttentionShape& shape, const AttentionOperands& gradients) {
  if (!shape.all_queries) gradients.query.zero_();
  if (shape.all_keys) return;
  gradients.key.zero_();
  gradients.value.zero_();
}

}  // namespace

at::Tensor AttentionForward(const AttentionOptions& options, const AttentionShape& shape,
                            const AttentionOperands& operands, AttentionMemory* memory,
                            CarriedKeys* carried) {
  if (memory != nullptr) memory->pieces.resize(shape.pieces.size());
  ArrivingKeys received =
      Receive(options, shape, operands, carried == nullptr ? CarriedKeys() : std::exchange(*carried, {}));
  const Call call = {options, shape, received, {}};
  const int64_t inner = operands.query.size(1);
  const bool is_all_of_it = shape.all_queries && shape.pieces.size() == 1;
  at::Tensor attended;
  const auto attend = [&](size_t i) {
    const AttentionPiece& piece = shape.pieces[i];
    const at::Tensor output = PieceForward(call, i, PieceOperands(operands, options, piece),
                                           memory == nullptr ? nullptr : &memory->pieces[i]);
    if (is_all_of_it) {
      attended = output.transpose(1, 2).reshape({shape.queries, inner});
      return;
    }
    if (!attended.defined()) attended = at::zeros({shape.queries, inner}, operands.query.options());
    QueryHeads(attended, options.heads, piece).copy_(output);
  };
  for (const bool divided : {false, true}) ForEachPiece(shape, divided, attend);
  if (carried != nullptr && shape.kept.has_value())
    *carried = Keep(*shape.kept, received.Get(), operands.key, operands.value);
  if (memory != nullptr && memory->keep_received) memory->received = std::move(received);
  return attended.defined() ? attended : at::zeros({shape.queries, inner}, operands.query.options());
}

void ReceiveAhead(const AttentionOptions& options, const AttentionShape& shape,
                  const AttentionOperands& operands, AttentionMemory& memory) {
  if (memory.received.is_nothing()) memory.received = Receive(options, shape, operands);
}

void AttentionBackward(const AttentionOptions& options, const AttentionShape& shape,
                       const AttentionOperands& operands, const at::Tensor& attended, AttentionMemory memory,
                       const at::Tensor& attended_gradient, const AttentionOperands& gradients) {
  PrepareGradients(shape, gradients);
  ReceiveAhead(options, shape, operands, memory);
  memory.pieces.resize(shape.pieces.size());
  const auto gradients_of = [&](size_t i) -> PieceGradients {
    const AttentionPiece& piece = shape.pieces[i];
    return {PieceOperands(operands, options, piece), QueryHeads(attended, options.heads, piece),
            QueryHeads(attended_gradient, options.heads, piece), PieceOperands(gradients, options, piece)};
  };
  Call call = {options, shape, memory.received, {}};
  std::unique_ptr<PendingRows> returned;
  if (shape.exchange.has_value()) {
    const int64_t columns = operands.key.size(1) + operands.value.size(1);
    call.gradients = {at::zeros({shape.exchange->received_rows(), columns}, operands.key.options())};
    // First what others wait for.
    ForEachPiece(shape, /*divided=*/true,
                 [&](size_t i) { ReceivedPieceBackward(call, i, gradients_of(i), memory.pieces[i]); });
    memory.received.Get();
    memory.received = ArrivingKeys();
    returned = StartKeyGradients(*options.group, *shape.exchange, call.gradients);
  }
  for (size_t i = 0; i < shape.pieces.size(); ++i)
    PieceBackward(call, i, gradients_of(i), std::move(memory.pieces[i]));
  if (returned != nullptr) AddKeyGradients(*shape.exchange, *returned, gradients.key, gradients.value);
}

}  // namespace penstock::worker
