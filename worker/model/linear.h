// Linear layers, and their backward pass in two parts: the gradient of the input at once, those of weight and
// bias at once or later.
//
//   WeightProducts products(/*put_aside=*/true);
//   at::Tensor input_gradient = LinearBackward(part, input, output_gradient, products);
//   ...
//   products.Run();
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace penstock::worker {

// A parameter and the sum of its gradients, which may be of a wider type.
struct Parameter {
  at::Tensor value;
  at::Tensor gradient;
};

struct LinearPart {
  // [out, in]
  Parameter weight;
  // [out]; undefined where the layer has none.
  Parameter bias;
};

// The products that make the gradients of weights: of (input, output gradient) pairs, which it keeps where
// they are to be made later.
class WeightProducts {
 public:
  explicit WeightProducts(bool put_aside) : put_aside_(put_aside) {}

  // `part` must live until Run. Adds to its gradients now, or keeps both tensors.
  void Add(const LinearPart& part, const at::Tensor& input, const at::Tensor& output_gradient);
  // Makes what was put aside, and frees each pair when it is used up.
  void Run();

 private:
  struct Product {
    const LinearPart* part = nullptr;
    at::Tensor input;
    at::Tensor output_gradient;
  };

  static void Multiply(const Product& product);

  bool put_aside_;
  std::vector<Product> products_;
};

// [tokens, in] to [tokens, out].
at::Tensor LinearForward(const LinearPart& part, const at::Tensor& input);

// The gradient of the input.
at::Tensor LinearBackward(const LinearPart& part, const at::Tensor& input, const at::Tensor& output_gradient,
                          WeightProducts& products);

}  // namespace penstock::worker
