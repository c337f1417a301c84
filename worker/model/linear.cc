#include "worker/model/linear.h"

#include <ATen/ATen.h>

namespace penstock::worker {

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
