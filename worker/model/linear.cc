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
  const std::optional<Shard>& rows = product.bias_rows;
  const at::Tensor gradient = rows.has_value() ? product.output_gradient.narrow(0, rows->begin, rows->size())
                                               : product.output_gradient;
  bias.gradient.add_(gradient.sum(at::IntArrayRef(0), /*keepdim=*/false, bias.gradient.scalar_type()));
}

void WeightProducts::Add(const LinearPart& part, const at::Tensor& input, const at::Tensor& output_gradient,
                         const std::optional<Shard>& bias_rows) {
  Product product{&part, input, output_gradient, bias_rows};
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

at::Tensor OutputsForward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input) {
  return LinearForward(part, rows.Gather(input));
}

at::Tensor OutputsBackward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input,
                           const at::Tensor& output_gradient, WeightProducts& products) {
  products.Add(part, rows.Gather(input), output_gradient);
  return rows.Sum(output_gradient.mm(part.weight.value));
}

at::Tensor InputsForward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input) {
  if (!rows.divided()) return LinearForward(part, input);
  at::Tensor output = rows.Sum(at::linear(input, part.weight.value));
  return part.bias.value.defined() ? output.add_(part.bias.value) : output;
}

at::Tensor InputsBackward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input,
                          const at::Tensor& output_gradient, WeightProducts& products) {
  if (!rows.divided()) return LinearBackward(part, input, output_gradient, products);
  const at::Tensor gathered = rows.Gather(output_gradient);
  products.Add(part, input, gathered, rows.own());
  return gathered.mm(part.weight.value);
}

}  // namespace penstock::worker
