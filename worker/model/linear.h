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

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "worker/comm/shard.h"
#include "worker/model/token_rows.h"

namespace penstock::worker {

// A parameter and the sum of its gradients, which may be of a wider type.
struct Parameter {
  at::Tensor value;
  at::Tensor gradient;
};

struct LinearPart {
  // [out, in], of which a tensor rank has its rows or its columns.
  Parameter weight;
  // [out]; undefined where the layer has none.
  Parameter bias;
};

// Told, while a backward pass of a stage runs, that it has made the gradients of all parameters that the
// stage alone holds from element `begin` of the flat buffers on (flat_parameters.h). They have been launched,
// where launching is not doing. May be empty.
using GradientsReady = std::function<void(int64_t begin)>;

// The products that make the gradients of weights: of (input, output gradient) pairs, which it keeps where
// they are to be made later.
class WeightProducts {
 public:
  // Of products that are made now, or put aside for Run.
  static WeightProducts Now(GradientsReady ready) { return {/*put_aside=*/false, std::move(ready)}; }
  static WeightProducts PutAside() { return {/*put_aside=*/true, {}}; }

  // `part` must live until Run. Adds to its gradients now, or keeps both tensors. The gradient of the bias is
  // of all rows, or of `bias_rows`.
  void Add(const LinearPart& part, const at::Tensor& input, const at::Tensor& output_gradient,
           const std::optional<Shard>& bias_rows = {});
  // All products of a layer, whose parameters begin at element `begin`, have been added.
  void EndLayer(int64_t begin);
  // Makes what was put aside, and frees each pair when it is used up.
  void Run(const GradientsReady& ready);

 private:
  struct Product {
    const LinearPart* part = nullptr;
    at::Tensor input;
    at::Tensor output_gradient;
    std::optional<Shard> bias_rows;
  };

  // Of products that were put aside: how many there are up to the layer's end.
  struct LayerEnd {
    size_t products = 0;
    int64_t begin = 0;
  };

  WeightProducts(bool put_aside, GradientsReady ready) : put_aside_(put_aside), ready_(std::move(ready)) {}

  static void Multiply(const Product& product);

  bool put_aside_;
  GradientsReady ready_;
  std::vector<Product> products_;
  std::vector<LayerEnd> layers_;
};

// [tokens, in] to [tokens, out].
at::Tensor LinearForward(const LinearPart& part, const at::Tensor& input);

// The gradient of the input.
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
