// The few operations on autograd graphs that kernels with a derivative of their own need: where a graph
// begins, where it ends, and running it.
//
//   at::Tensor leaf = MakeLeaf(input);
//   GraphEnd end(SomeLayers(leaf));        // keeps the graph, not the result
//   end.Backward(gradient);
//   at::Tensor input_gradient = leaf.grad();
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

namespace penstock::worker {

// Shares the data of `value` and begins a graph.
at::Tensor MakeLeaf(const at::Tensor& value);

// The result of a graph without its data, so that an activation may be freed while its graph waits for the
// backward pass.
class GraphEnd {
 public:
  GraphEnd() = default;
  explicit GraphEnd(const at::Tensor& result);
  bool defined() const { return edge_.is_valid(); }
  // Accumulates into the leaves and gives the graph back. Once. Throws c10::Error.
  void Backward(const at::Tensor& gradient);

 private:
  torch::autograd::Edge edge_;
};

}  // namespace penstock::worker
