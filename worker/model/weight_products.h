// The products that make the gradients of linear layers' weights, of (input, output gradient) pairs: nobody
// in the pass waits for them, so they are made at once, in a pass of their own, or while rows of experts
// travel (Jiang et al., "Lancet", MLSys 2024, section 5.1).
//
//   WeightProducts products = WeightProducts::PutAside(beside);
//   at::Tensor input_gradient = LinearBackward(part, input, output_gradient, products);   // adds one
//   products.EndLayer(begin);
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
#include "worker/program/program.h"

namespace penstock::worker {

// A parameter and the sum of its gradients, which may be of a wider type. One that is frozen has none.
struct Parameter {
  at::Tensor value;
  at::Tensor gradient;

  bool learns() const { return gradient.defined(); }
};

// What is added to some outputs of a linear layer: scale * B (A x) (Hu et al. 2021, "LoRA", section 4.1).
struct AdapterPart {
  // [rank, in] and [those outputs, rank], of which a tensor rank has what the layer's weight has.
  Parameter a;
  Parameter b;
  int64_t first_output = 0;
  double scale = 1;

  // Of [tokens, out]: a view.
  at::Tensor Outputs(const at::Tensor& output) const;
  // Of B's product: [tokens, rank], of the gradient of the layer's output.
  at::Tensor LowRankGradient(const at::Tensor& output_gradient) const;
};

struct LinearPart {
  // [out, in], of which a tensor rank has its rows or its columns.
  Parameter weight;
  // [out]; undefined where the layer has none.
  Parameter bias;
  std::vector<AdapterPart> adapters = {};
};

// Told, while a backward pass of a stage runs, that it has made the gradients of all parameters that the
// stage alone holds from element `begin` of the flat buffers on (flat_parameters.h). They have been launched,
// where launching is not doing. May be empty.
using GradientsReady = std::function<void(int64_t begin)>;

class WeightProducts {
 public:
  // Of products that are made now, or put aside for Run; but for those that are made beside exchanges.
  static WeightProducts Now(GradientsReady ready, const ProductsBeside& beside = {}) {
    return {/*put_aside=*/false, std::move(ready), beside};
  }
  // Of a micro-batch in parts, whose passes take turns: those of a part's experts are made while their
  // gradients of rows go back, all others of a layer while those of the layer below go to its experts.
  static WeightProducts NowInParts(GradientsReady ready);
  static WeightProducts PutAside(const ProductsBeside& beside = {}) {
    return {/*put_aside=*/true, {}, beside};
  }
  // The same of a micro-batch in parts: those of all its experts are made while rows go back.
  static WeightProducts PutAsideInParts();

  // `part` must live until its product is made. Adds to its gradients, or keeps both tensors; of a layer in
  // which nothing learns, neither. The gradient of the bias is of all rows, or of `bias_rows`.
  void Add(const LinearPart& part, const at::Tensor& input, const at::Tensor& output_gradient,
           const std::optional<Shard>& bias_rows = {});
  // Of the rank's experts: the one with this number in the order of execution.md, section 7.
  void AddOfExperts(size_t product, const LinearPart& part, const at::Tensor& input,
                    const at::Tensor& output_gradient);

  // Of the layer whose products come next, also of one that goes on: those of a layer without experts are
  // beside no exchange.
  void BeginLayer(bool has_experts) { beside_now_ = has_experts; }

  // While a layer's rows, or gradients of rows, go to its experts: those that the layer with experts above
  // left for it.
  void RunBesideArrival();
  // While they go back: the first ones of this layer's experts.
  void RunBesideReturn();

  // Before a layer runs again, at the latest then: what they are made of would be there beside all that the
  // layer makes again. Of parts but one has some of it at a time, and makes them when its rows travel.
  void RunBeforeLayerAgain();

  // No layer with experts is below: what is left for one is made, or put aside.
  void EndExperts();
  // All products of a layer, whose parameters begin at element `begin`, have been added: of parts, by the
  // last.
  void EndLayer(int64_t begin);
  // A part has no layer below.
  void EndPart();

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

  WeightProducts(bool put_aside, GradientsReady ready, const ProductsBeside& beside)
      : put_aside_(put_aside), ready_(std::move(ready)), beside_(beside) {}

  static void Multiply(const Product& product);
  // Of the weight, and of an adapter's matrices.
  static void MultiplyWeight(const Product& product);
  static void MultiplyAdapter(const AdapterPart& adapter, const Product& product);
  static void MultiplyAll(std::vector<Product>& products);
  // Of what is beside no exchange.
  void MakeOrPutAside(Product product);
  void TellReady(int64_t begin);

  bool put_aside_;
  bool in_parts_ = false;
  GradientsReady ready_;
  ProductsBeside beside_;
  bool beside_now_ = true;
  // Left for the exchanges.
  std::vector<Product> on_return_;
  std::vector<Product> on_arrival_;
  // Where the layer of the latter begins, if it has ended, and those without experts that have ended since.
  std::vector<int64_t> waiting_begins_;
  // Put aside.
  std::vector<Product> products_;
  std::vector<LayerEnd> layers_;
};

}  // namespace penstock::worker
