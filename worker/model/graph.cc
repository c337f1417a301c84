#include "worker/model/graph.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace penstock::worker {
namespace {

// Moves each gradient of a narrow type into the wide sum as soon as it is there.
class WideSum : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit WideSum(at::Tensor sum) : sum_(std::move(sum)) {}

  void operator()(const at::Tensor& value) override {
    sum_.add_(value.grad());
    value.mutable_grad().reset();
  }

 private:
  at::Tensor sum_;
};

}  // namespace

at::Tensor MakeLeaf(const at::Tensor& value) { return value.detach().requires_grad_(true); }

GraphEnd::GraphEnd(const at::Tensor& result) : edge_(torch::autograd::impl::gradient_edge(result)) {}

void GraphEnd::Backward(const at::Tensor& gradient) {
  const torch::autograd::Edge edge = std::exchange(edge_, {});
  torch::autograd::Engine::get_default_engine().execute({edge}, {gradient}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

void AccumulateInto(at::Tensor& value, const at::Tensor& gradient) {
  value.requires_grad_(true);
  if (gradient.scalar_type() == value.scalar_type()) {
    value.mutable_grad() = gradient;  // autograd adds to it in place
  } else {
    torch::autograd::impl::set_post_acc_grad_hooks(value, std::make_unique<WideSum>(gradient));
  }
}

}  // namespace penstock::worker
