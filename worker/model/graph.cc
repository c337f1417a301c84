#include "worker/model/graph.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace penstock::worker {
at::Tensor MakeLeaf(const at::Tensor& value) { return value.detach().requires_grad_(true); }

GraphEnd::GraphEnd(const at::Tensor& result) : edge_(torch::autograd::impl::gradient_edge(result)) {}

void GraphEnd::Backward(const at::Tensor& gradient) {
  const torch::autograd::Edge edge = std::exchange(edge_, {});
  torch::autograd::Engine::get_default_engine().execute({edge}, {gradient}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

}  // namespace penstock::worker
