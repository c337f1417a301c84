// Stages with adapters against stages of whole models: with the weights W + scale * B A the losses are the
// same, and from the gradient G of such a weight follow those of B, scale * G A^T, and of A, scale * B^T G.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/model_testing.h"
#include "tests/unit/worker/tensor_slices.h"
#include "worker/model/adapter_parameters.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kAdaptedSeed = 21;
constexpr double kExactly = 1e-11;

const std::vector<LinearLayer>& AllDense() {
  static const std::vector<LinearLayer> layers = {LinearLayer::kQuery, LinearLayer::kKey,
                                                  LinearLayer::kValue, LinearLayer::kOutput,
                                                  LinearLayer::kUp,    LinearLayer::kDown};
  return layers;
}

ModelConfig Adapted(ModelConfig config, std::vector<LinearLayer> targets, int64_t rank = 3) {
  config.adapters = {.rank = rank, .scale = 0.7, .targets = std::move(targets)};
  return config;
}

const std::vector<TestSample>& AdaptedSamples() {
  static const std::vector<TestSample> samples = {{3, 9}, {5, 4}, {2, 7}, {6, 3}};
  return samples;
}

// Where an adapter's outputs are: rows of the weight of a linear layer.
struct AdaptedRows {
  std::string weight;
  int64_t first = 0;
};

// By what the names of the adapter's parameters begin with ("layers.1.attention.key").
AdaptedRows RowsOf(const ModelConfig& config, const std::string& adapter) {
  const size_t dot = adapter.rfind('.');
  const std::string part = adapter.substr(0, dot + 1);
  const std::string layer = adapter.substr(dot + 1);
  const int64_t queries = AttentionInner(config);
  const int64_t keys = KeyValueInner(config);
  if (part.ends_with("cross.")) {
    if (layer == "key") return {part + "key_value.weight", 0};
    if (layer == "value") return {part + "key_value.weight", keys};
  } else if (part.ends_with("attention.") && layer != "output") {
    return {part + "qkv.weight", layer == "query" ? 0 : layer == "key" ? queries : queries + keys};
  }
  return {adapter + ".weight", 0};
}

// B is not 0, so that both matrices have gradients.
void DrawB(Stage& stage) {
  for (const NamedParameter& parameter : stage.parameters()) {
    if (parameter.name.find("lora_b") == std::string::npos) continue;
    const ParameterSpec spec = {.name = parameter.name,
                                .shape = parameter.part.whole_shape,
                                .initial = Initial::kNormal,
                                .standard_deviation = 0.1};
    parameter.value.copy_(InitialValue(spec, kAdaptedSeed, at::kDouble, at::kCPU));
  }
}

// Loss and gradients of adapters, from those of a model without any.
Result FromWholeModel(const ModelConfig& adapted, const Stage& stage, Layout layout) {
  ModelConfig whole = adapted;
  whole.adapters = {};
  TestPipeline pipeline(whole, kAdaptedSeed, {static_cast<uint32_t>(whole.layers)});
  std::map<std::string, at::Tensor> weights;
  std::map<std::string, at::Tensor> gradients;
  for (const NamedParameter& parameter : pipeline.stage(0).parameters()) {
    weights[parameter.name] = parameter.value;
    gradients[parameter.name] = parameter.gradient;
  }
  struct Adapter {
    AdaptedRows rows;
    at::Tensor a;
    at::Tensor b;
  };
  std::map<std::string, Adapter> adapters;
  for (const NamedParameter& parameter : stage.parameters()) {
    const std::string name = parameter.name.substr(0, parameter.name.rfind(".lora_"));
    Adapter& adapter = adapters[name];
    adapter.rows = RowsOf(adapted, name);
    (parameter.name.ends_with("lora_a.weight") ? adapter.a : adapter.b) = parameter.value;
  }
  for (const auto& [name, adapter] : adapters) {
    weights.at(adapter.rows.weight)
        .narrow(0, adapter.rows.first, adapter.b.size(0))
        .add_(adapter.b.mm(adapter.a), adapted.adapters.scale);
  }
  pipeline.Run(AdaptedSamples(), layout, {}, CountLossTokens(whole, AdaptedSamples()));
  Result result = {.loss = pipeline.result().loss, .gradients = {}};
  for (const auto& [name, adapter] : adapters) {
    const at::Tensor gradient =
        gradients.at(adapter.rows.weight).narrow(0, adapter.rows.first, adapter.b.size(0)) *
        adapted.adapters.scale;
    result.gradients[name + ".lora_b.weight"] = gradient.mm(adapter.a.t());
    result.gradients[name + ".lora_a.weight"] = adapter.b.t().mm(gradient);
  }
  return result;
}

struct AdaptedModel {
  const char* name;
  ModelConfig (*config)();
};

class AdaptedStage : public ::testing::TestWithParam<AdaptedModel> {};

INSTANTIATE_TEST_SUITE_P(
    Models, AdaptedStage,
    ::testing::Values(
        AdaptedModel{"GptAll", [] { return Adapted(SmallConfig(DataType::kFloat64), AllDense()); }},
        AdaptedModel{"GptValues",
                     [] { return Adapted(SmallConfig(DataType::kFloat64), {LinearLayer::kValue}); }},
        AdaptedModel{"LlamaAll",
                     [] {
                       std::vector<LinearLayer> targets = AllDense();
                       targets.push_back(LinearLayer::kGate);
                       return Adapted(Tied(SmallLlamaConfig(DataType::kFloat64)), targets);
                     }},
        AdaptedModel{"LlamaQueriesAndValues",
                     [] {
                       return Adapted(SmallLlamaConfig(DataType::kFloat64),
                                      {LinearLayer::kQuery, LinearLayer::kValue});
                     }},
        AdaptedModel{"T5All", [] { return Adapted(Tied(SmallT5Config(DataType::kFloat64)), AllDense()); }},
        AdaptedModel{"T5Down",
                     [] { return Adapted(SmallT5Config(DataType::kFloat64), {LinearLayer::kDown}); }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(AdaptedStage, HasTheLossAndGradientsOfTheMergedModelInEverySplit) {
  const ModelConfig config = GetParam().config();
  for (const Layout layout : {Layout::kPacked, Layout::kPadded}) {
    TestPipeline one(config, kAdaptedSeed, {static_cast<uint32_t>(config.layers)});
    DrawB(one.stage(0));
    const Result expected = FromWholeModel(config, one.stage(0), layout);
    for (const std::vector<uint32_t>& layers : {std::vector<uint32_t>{4}, {1, 3}, {2, 2}}) {
      for (const bool split : {false, true}) {
        for (const LayerRecompute recompute : {LayerRecompute{}, {.selective = 1, .full = 1}}) {
          TestPipeline pipeline(config, kAdaptedSeed, layers);
          for (size_t i = 0; i < layers.size(); ++i) DrawB(pipeline.stage(i));
          pipeline.Run(AdaptedSamples(), layout, {.recompute = recompute, .split_backward = split},
                       CountLossTokens(config, AdaptedSamples()));
          EXPECT_LE(RelativeDifference(pipeline.result(), expected), kExactly);
        }
      }
    }
  }
}

TEST_P(AdaptedStage, BeginsAsTheModelThatItAdapts) {
  const ModelConfig config = GetParam().config();
  ModelConfig whole = config;
  whole.adapters = {};
  const auto loss = [](const ModelConfig& model) {
    TestPipeline pipeline(model, kAdaptedSeed, {4});
    pipeline.Run(AdaptedSamples(), Layout::kPacked, {}, CountLossTokens(model, AdaptedSamples()));
    return pipeline.result().loss;
  };
  EXPECT_EQ(loss(config), loss(whole));
}

TEST_P(AdaptedStage, HoldsWeightsAloneOfAllElse) {
  const ModelConfig config = GetParam().config();
  TestPipeline pipeline(config, kAdaptedSeed, {4});
  const FlatParameters& flat = pipeline.stage(0).flat_parameters();
  int64_t trained = 0;
  for (const NamedParameter& parameter : flat.parameters) {
    EXPECT_NE(parameter.name.find("lora_"), std::string::npos);
    trained += parameter.value.numel();
  }
  EXPECT_LT(flat.gradients.numel(), 2 * trained);
  EXPECT_EQ(flat.frozen.size(), StageParameterSpecs(config, {0, 4, true, true}).size());
  for (const NamedParameter& parameter : flat.frozen) EXPECT_FALSE(parameter.gradient.defined());
}

TEST(AdapterSpecs, StartAWithinTheBoundOfItsInputsAndBAtZero) {
  const ModelConfig config = Adapted(SmallLlamaConfig(DataType::kFloat64), AllDense(), /*rank=*/64);
  for (const ParameterSpec& spec : AdapterSpecs(config, {0, 4, true, true})) {
    const at::Tensor value = InitialValue(spec, kAdaptedSeed, at::kDouble, at::kCPU);
    if (spec.name.ends_with("lora_b.weight")) {
      EXPECT_EQ(value.abs().max().item<double>(), 0) << spec.name;
      continue;
    }
    const double bound = 1 / std::sqrt(static_cast<double>(spec.shape[1]));
    EXPECT_LE(value.abs().max().item<double>(), bound) << spec.name;
    // The variance of a uniform distribution.
    EXPECT_NEAR(value.square().mean().item<double>() / (bound * bound), 1.0 / 3, 0.03) << spec.name;
    EXPECT_NEAR(value.mean().item<double>() / bound, 0, 0.05) << spec.name;
  }
}

TEST(AdapterChecks, RefuseExpertsAndAGateThatIsNotThere) {
  const auto refusal = [](const ModelConfig& config) {
    return std::string(
        MakeTransformerStage(config, {0, 4, true, true}, kAdaptedSeed, at::kCPU).status().message());
  };
  EXPECT_EQ(refusal(Adapted(SmallExpertsConfig(DataType::kFloat64), {LinearLayer::kQuery})),
            "model.adapters: a model with experts has none; train all of it");
  EXPECT_EQ(refusal(Adapted(SmallConfig(DataType::kFloat64), {LinearLayer::kGate})),
            "model.adapters.targets: the model has no gate");
}

}  // namespace
}  // namespace penstock::worker
