#include "worker/model/linear.h"

#include <ATen/ATen.h>

#include <utility>

namespace penstock::worker {

void WeightProducts::Multiply(const Product& product) {
  const Parameter& weight = product.part->weight;
  const at::Tensor transposed = product.output_gradient.t();
  if (weight.gradient.scalar_type() == product.input.scalar_type()) {
    weight.gradient.addmm_(transposed, product.input);
  } else {
    weight.gradient.add_(transposed.mm(product.input));
  }
  const Parameter& bias = product.part->bias;
  if (!bias.value.defined()) return;
  bias.gradient.add_(
      product.output_gradient.sum(at::IntArrayRef(0), /*keepdim=*/false, bias.gradient.scalar_type()));
}

void WeightProducts::Add(const LinearPart& part, const at::Tensor& input, const at::Tensor& output_gradient) {
  Product product{&part, input, output_gradient};
  if (put_aside_) {
    products_.push_back(std::move(product));
  } else {
    Multiply(product);
  }
}

void WeightProducts::EndLayer(int64_t begin) {
  if (put_aside_) {
    layers_.push_back({products_.size(), begin});
  } else if (ready_) {
    ready_(begin);
  }
}

void WeightProducts::Run(const GradientsReady& ready) {
  size_t next = 0;
  for (const LayerEnd& layer : layers_) {
    for (; next < layer.products; ++next) {
      Multiply(products_[next]);
      products_[next] = {};
    }
    if (ready) ready(layer.begin);
  }
  products_.clear();
  layers_.clear();
}

at::Tensor LinearForward(const LinearPart& part, const at::Tensor& input) {
  return at::linear(input, part.weight.value, part.bias.value);
}

at::Tensor LinearBackward(const LinearPart& part, const at::Tensor& input, const at::Tensor& output_gradient,
                          WeightProducts& products) {
  products.Add(part, input, output_gradient);
  return output_gradient.mm(part.weight.value);
}

}  // namespace penstock::worker
