#include "worker/model/linear.h"

#include <ATen/ATen.h>

namespace penstock::worker {
namespace {

// With tensor ranks that divide the inputs each adds its part of a sum.
at::Tensor AddAdapters(const LinearPart& part, const at::Tensor& input, at::Tensor output) {
  for (const AdapterPart& adapter : part.adapters) {
    adapter.Outputs(output).addmm_(at::linear(input, adapter.a.value), adapter.b.value.t(), /*beta=*/1,
                                   /*alpha=*/adapter.scale);
  }
  return output;
}

}  // namespace

at::Tensor LinearForward(const LinearPart& part, const at::Tensor& input) {
  return AddAdapters(part, input, at::linear(input, part.weight.value, part.bias.value));
}

at::Tensor InputGradient(const LinearPart& part, const at::Tensor& output_gradient) {
  at::Tensor gradient = output_gradient.mm(part.weight.value);
  for (const AdapterPart& adapter : part.adapters)
    gradient.addmm_(adapter.LowRankGradient(output_gradient), adapter.a.value);
  return gradient;
}

at::Tensor LinearBackward(const LinearPart& part, const at::Tensor& input, const at::Tensor& output_gradient,
                          WeightProducts& products) {
  products.Add(part, input, output_gradient);
  return InputGradient(part, output_gradient);
}

at::Tensor OutputsForward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input) {
  return LinearForward(part, rows.Gather(input));
}

at::Tensor OutputsBackward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input,
                           const at::Tensor& output_gradient, WeightProducts& products) {
  products.Add(part, rows.Gather(input), output_gradient);
  return rows.Sum(InputGradient(part, output_gradient));
}

at::Tensor InputsForward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input) {
  if (!rows.divided()) return LinearForward(part, input);
  at::Tensor output = rows.Sum(AddAdapters(part, input, at::linear(input, part.weight.value)));
  return part.bias.value.defined() ? output.add_(part.bias.value) : output;
}

at::Tensor InputsBackward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input,
                          const at::Tensor& output_gradient, WeightProducts& products) {
  if (!rows.divided()) return LinearBackward(part, input, output_gradient, products);
  const at::Tensor gathered = rows.Gather(output_gradient);
  products.Add(part, input, gathered, rows.own());
  return InputGradient(part, gathered);
}

}  // namespace penstock::worker
