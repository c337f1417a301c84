#include "worker/model/weight_products.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace penstock::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Layers with two products of experts and another weight each; a product is 1.
class WeightProductsTest : public testing::Test {
 protected:
  struct Layer {
    std::array<LinearPart, 2> experts = {MakePart(), MakePart()};
    LinearPart other = MakePart();

    // 1: made; of the experts, then the other weight.
    std::vector<int> made() const { return {MadeOf(experts[0]), MadeOf(experts[1]), MadeOf(other)}; }
  };

  static LinearPart MakePart() { return {.weight = {at::zeros({1, 1}), at::zeros({1, 1})}, .bias = {}}; }
  static int MadeOf(const LinearPart& part) { return part.weight.gradient.item<int>(); }

  // As ExpertsBackward and what stands before it in a layer.
  void Backward(Layer& layer, int64_t begin, WeightProducts& products) {
    const at::Tensor one = at::ones({1, 1});
    products.RunBesideArrival();
    for (size_t i = 0; i < layer.experts.size(); ++i) products.AddOfExperts(i, layer.experts[i], one, one);
    products.RunBesideReturn();
    products.Add(layer.other, one, one);
    if (&layer == &lower_) products.EndExperts();
    products.EndLayer(begin);
  }

  GradientsReady Ready() {
    return [this](int64_t begin) { ready_.push_back(begin); };
  }

  Layer upper_;
  Layer lower_;
  std::vector<int64_t> ready_;
};

TEST_F(WeightProductsTest, AreMadeAtOnceWhereNothingIsBesideExchanges) {
  WeightProducts products = WeightProducts::Now(Ready());
  Backward(upper_, 7, products);
  EXPECT_THAT(upper_.made(), ElementsAre(1, 1, 1));
  EXPECT_THAT(ready_, ElementsAre(7));
}

TEST_F(WeightProductsTest, TheFirstOfExpertsAreMadeOnTheWayBackAndOthersOnTheWayOfTheLayerBelow) {
  WeightProducts products = WeightProducts::Now(
      Ready(), {.products_on_return = 1, .products_on_arrival = 1, .others_on_arrival = true});
  Backward(upper_, 7, products);
  EXPECT_THAT(upper_.made(), ElementsAre(1, 0, 0));
  EXPECT_THAT(ready_, IsEmpty()) << "two of its gradients are not there yet";
  products.RunBesideArrival();
  EXPECT_THAT(upper_.made(), ElementsAre(1, 1, 1));
  EXPECT_THAT(ready_, ElementsAre(7));
  Backward(lower_, 3, products);
  EXPECT_THAT(lower_.made(), ElementsAre(1, 1, 1)) << "no layer with experts is below";
  EXPECT_THAT(ready_, ElementsAre(7, 3));
}

TEST_F(WeightProductsTest, OfALayerWithoutExpertsAreMadeAtOnceWhileThoseOfTheLayerAboveWait) {
  WeightProducts products = WeightProducts::Now(
      Ready(), {.products_on_return = 1, .products_on_arrival = 1, .others_on_arrival = true});
  Backward(upper_, 7, products);
  const LinearPart dense = MakePart();
  products.BeginLayer(/*has_experts=*/false);
  products.Add(dense, at::ones({1, 1}), at::ones({1, 1}));
  products.EndLayer(5);
  EXPECT_EQ(MadeOf(dense), 1);
  EXPECT_THAT(upper_.made(), ElementsAre(1, 0, 0));
  EXPECT_THAT(ready_, IsEmpty()) << "gradients behind its own are not there yet";
  products.BeginLayer(/*has_experts=*/true);
  Backward(lower_, 3, products);
  EXPECT_THAT(upper_.made(), ElementsAre(1, 1, 1));
  EXPECT_THAT(ready_, ElementsAre(7, 5, 3));
}

TEST_F(WeightProductsTest, ThatNoExchangeHidesAreMadeAtOnceBesideThoseThatWait) {
  WeightProducts products = WeightProducts::Now(Ready(), {.products_on_return = 1});
  Backward(upper_, 7, products);
  EXPECT_THAT(upper_.made(), ElementsAre(1, 1, 1));
  EXPECT_THAT(ready_, ElementsAre(7));
}

TEST_F(WeightProductsTest, OfASplitPassAreMadeBesideExchangesOrPutAside) {
  WeightProducts products = WeightProducts::PutAside({.products_on_return = 1, .products_on_arrival = 1});
  Backward(upper_, 7, products);
  EXPECT_THAT(upper_.made(), ElementsAre(1, 0, 0));
  Backward(lower_, 3, products);
  EXPECT_THAT(upper_.made(), ElementsAre(1, 1, 0));
  EXPECT_THAT(lower_.made(), ElementsAre(1, 0, 0)) << "no layer is below: its gradients are left, too";
  products.Run(Ready());
  EXPECT_THAT(upper_.made(), ElementsAre(1, 1, 1));
  EXPECT_THAT(lower_.made(), ElementsAre(1, 1, 1));
  EXPECT_THAT(ready_, ElementsAre(7, 3));
}

}  // namespace
}  // namespace penstock::worker
