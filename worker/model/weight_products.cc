#include "worker/model/weight_products.h"

#include <ATen/ATen.h>

#include <limits>

namespace penstock::worker {
namespace {

constexpr uint32_t kAllProducts = std::numeric_limits<uint32_t>::max();

// Adds scale * left right, which are of the gradient's type or a narrower one.
void AddScaledProduct(const at::Tensor& gradient, const at::Tensor& left, const at::Tensor& right,
                      double scale) {
  if (gradient.scalar_type() == left.scalar_type()) {
    gradient.addmm_(left, right, /*beta=*/1, /*alpha=*/scale);
  } else {
    gradient.add_(left.mm(right), /*alpha=*/scale);
  }
}

bool Learns(const LinearPart& part) { return part.weight.learns() || !part.adapters.empty(); }

}  // namespace

at::Tensor AdapterPart::Outputs(const at::Tensor& output) const {
  return output.narrow(1, first_output, b.value.size(0));
}

at::Tensor AdapterPart::LowRankGradient(const at::Tensor& output_gradient) const {
  return Outputs(output_gradient).mm(b.value).mul_(scale);
}

WeightProducts WeightProducts::NowInParts(GradientsReady ready) {
  WeightProducts products =
      Now(std::move(ready), {.products_on_return = kAllProducts, .others_on_arrival = true});
  products.in_parts_ = true;
  return products;
}

WeightProducts WeightProducts::PutAsideInParts() { return PutAside({.products_on_return = kAllProducts}); }

void WeightProducts::MultiplyAdapter(const AdapterPart& adapter, const Product& product) {
  AddScaledProduct(adapter.b.gradient, adapter.Outputs(product.output_gradient).t(),
                   at::linear(product.input, adapter.a.value), adapter.scale);
  AddScaledProduct(adapter.a.gradient, adapter.LowRankGradient(product.output_gradient).t(), product.input,
                   /*scale=*/1);
}

void WeightProducts::MultiplyWeight(const Product& product) {
  const Parameter& weight = product.part->weight;
  const at::Tensor transposed = product.output_gradient.t();
  if (weight.gradient.scalar_type() == product.input.scalar_type()) {
    weight.gradient.addmm_(transposed, product.input);
  } else {
    weight.gradient.add_(transposed.mm(product.input));
  }
}

void WeightProducts::Multiply(const Product& product) {
  for (const AdapterPart& adapter : product.part->adapters) MultiplyAdapter(adapter, product);
  if (product.part->weight.learns()) MultiplyWeight(product);
  const Parameter& bias = product.part->bias;
  if (!bias.learns()) return;
  const std::optional<Shard>& rows = product.bias_rows;
  const at::Tensor gradient = rows.has_value() ? product.output_gradient.narrow(0, rows->begin, rows->size())
                                               : product.output_gradient;
  bias.gradient.add_(gradient.sum(at::IntArrayRef(0), /*keepdim=*/false, bias.gradient.scalar_type()));
}

void WeightProducts::MultiplyAll(std::vector<Product>& products) {
  for (Product& product : products) {
    Multiply(product);
    product = {};
  }
  products.clear();
}

void WeightProducts::MakeOrPutAside(Product product) {
  if (put_aside_) {
    products_.push_back(std::move(product));
  } else {
    Multiply(product);
  }
}

void WeightProducts::Add(const LinearPart& part, const at::Tensor& input, const at::Tensor& output_gradient,
                         const std::optional<Shard>& bias_rows) {
  if (!Learns(part)) return;
  Product product{&part, input, output_gradient, bias_rows};
  if (beside_.others_on_arrival && beside_now_) {
    on_arrival_.push_back(std::move(product));
  } else {
    MakeOrPutAside(std::move(product));
  }
}

void WeightProducts::AddOfExperts(size_t product, const LinearPart& part, const at::Tensor& input,
                                  const at::Tensor& output_gradient) {
  Product made{&part, input, output_gradient, {}};
  if (product < beside_.products_on_return) {
    on_return_.push_back(std::move(made));
  } else if (product < size_t{beside_.products_on_return} + beside_.products_on_arrival) {
    on_arrival_.push_back(std::move(made));
  } else {
    MakeOrPutAside(std::move(made));
  }
}

void WeightProducts::RunBesideReturn() { MultiplyAll(on_return_); }

void WeightProducts::RunBesideArrival() {
  MultiplyAll(on_arrival_);
  for (const int64_t begin : std::exchange(waiting_begins_, {})) TellReady(begin);
}

void WeightProducts::RunBeforeLayerAgain() {
  if (!in_parts_) RunBesideArrival();
}

void WeightProducts::EndPart() {
  if (in_parts_) RunBesideArrival();
}

void WeightProducts::EndLayer(int64_t begin) {
  if (put_aside_) {
    layers_.push_back({products_.size(), begin});
  } else if (on_arrival_.empty()) {
    TellReady(begin);
  } else {
    waiting_begins_.push_back(begin);
  }
}

void WeightProducts::EndExperts() {
  if (in_parts_) return;
  for (Product& product : on_arrival_) MakeOrPutAside(std::move(product));
  on_arrival_.clear();
}

void WeightProducts::TellReady(int64_t begin) {
  if (ready_) ready_(begin);
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

}  // namespace penstock::worker
