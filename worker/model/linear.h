// Linear layers, and their backward pass in two parts: the gradient of the input at once, those of weight and
// bias at once or later. Tensor ranks divide a layer by its outputs, or by its inputs: the two kinds follow
// each other, so that only what stands between the pairs is exchanged (Shoeybi et al., "Megatron-LM", 2019,
// section 3).
//
//   WeightProducts products = WeightProducts::PutAside();
//   at::Tensor input_gradient = LinearBackward(part, input, output_gradient, products);
//   ...
//   products.Run(ready);
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/model/token_rows.h"
#include "worker/model/weight_products.h"

namespace penstock::worker {

// [tokens, in] to [tokens, out].
at::Tensor LinearForward(const LinearPart& part, const at::Tensor& input);

// The gradient of the input alone.
at::Tensor InputGradient(const LinearPart& part, const at::Tensor& output_gradient);
// The same, and the gradients of what learns.
at::Tensor LinearBackward(const LinearPart& part, const at::Tensor& input, const at::Tensor& output_gradient,
                          WeightProducts& products);

// A layer whose outputs are divided: [own tokens, in] to [tokens, own out].
at::Tensor OutputsForward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input);
// The gradient of the input, [own tokens, in]. Gathers the input again.
at::Tensor OutputsBackward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input,
                           const at::Tensor& output_gradient, WeightProducts& products);

// A layer whose inputs are divided, and whose bias is added to the sum: [tokens, own in] to [own tokens,
// out].
at::Tensor InputsForward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input);
// The gradient of the input, [tokens, own in].
at::Tensor InputsBackward(const LinearPart& part, const TokenRows& rows, const at::Tensor& input,
                          const at::Tensor& output_gradient, WeightProducts& products);

}  // namespace penstock::worker
