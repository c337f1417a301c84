#include "worker/optimizer/adamw.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "tests/support/temporary_folder.h"
#include "worker/checkpoint/tensor_piece.h"
#include "worker/memory/tensor_memory.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

TrainingConfig Config() {
  TrainingConfig config;
  config.learning_rate.peak = 0.1;
  config.beta1 = 0.9;
  config.beta2 = 0.99;
  config.epsilon = 1e-8;
  config.weight_decay = 0.5;
  return config;
}

// Parameters of these shapes, all of `value`, with gradients of 0.
FlatParameters Parameters(const std::map<std::string, std::vector<int64_t>>& shapes, double value,
                          at::ScalarType type = at::kDouble) {
  std::vector<ParameterSpec> specs;
  for (const auto& [name, shape] : shapes) specs.push_back({.name = name, .shape = shape});
  FlatParameters flat = MakeFlatParameters(specs, /*seed=*/1, type, at::kCPU);
  for (const NamedParameter& parameter : flat.parameters) parameter.value.fill_(value);
  return flat;
}

// Matrices and vectors of sizes that fill no vector of a machine.
FlatParameters SeveralParameters(at::ScalarType type) {
  FlatParameters flat = Parameters({{"a", {5, 7}}, {"b", {3}}, {"c", {300, 211}}, {"d", {131}}}, 0, type);
  for (const NamedParameter& parameter : flat.parameters) {
    const at::Tensor index = at::arange(parameter.value.numel(), at::kDouble) + parameter.offset;
    parameter.value.copy_(at::sin(index).view(parameter.value.sizes()));
  }
  return flat;
}

void SetGradients(const FlatParameters& flat, int step) {
  for (const NamedParameter& parameter : flat.parameters) {
    const at::Tensor index = at::arange(parameter.value.numel(), at::kDouble) + parameter.offset;
    parameter.gradient.copy_(at::cos(index * (step + 1)).view(parameter.value.sizes()));
  }
}

std::unique_ptr<AdamW> Make(const TrainingConfig& config, const FlatParameters& parameters,
                            const Sharding& sharding = {}) {
  auto optimizer = AdamW::Create(config, {&parameters}, {.of_tensor_rank = sharding});
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  return *std::move(optimizer);
}

// One element, in plain arithmetic.
struct PlainAdamW {
  double weight = 0;
  double first = 0;
  double second = 0;

  void Step(int step, double gradient, double decay) {
    first = 0.9 * first + 0.1 * gradient;
    second = 0.99 * second + 0.01 * gradient * gradient;
    const double mean = first / (1 - std::pow(0.9, step));
    const double variance = second / (1 - std::pow(0.99, step));
    weight -= 0.1 * (mean / (std::sqrt(variance) + 1e-8) + decay * weight);
  }
};

TEST(AdamW, StepsAsByHand) {
  const FlatParameters flat = Parameters({{"bias", {1}}, {"matrix", {1, 1}}}, 2);
  const NamedParameter& bias = flat.parameters[0];
  const NamedParameter& matrix = flat.parameters[1];
  const auto optimizer = Make(Config(), flat);
  PlainAdamW plain_matrix{2, 0, 0};
  PlainAdamW plain_bias{2, 0, 0};
  const std::vector<double> gradients = {0.3, -1.5, 0.2, 4};
  for (int step = 1; step <= 4; ++step) {
    const double gradient = gradients[static_cast<size_t>(step - 1)];
    matrix.gradient.fill_(gradient);
    bias.gradient.fill_(gradient);
    ASSERT_TRUE(optimizer->Step(static_cast<uint64_t>(step - 1), /*gradient_scale=*/0.5).ok());
    plain_matrix.Step(step, 0.5 * gradient, 0.5);
    plain_bias.Step(step, 0.5 * gradient, 0);  // no decay for vectors
    EXPECT_NEAR(matrix.value.item<double>(), plain_matrix.weight, 1e-14);
    EXPECT_NEAR(bias.value.item<double>(), plain_bias.weight, 1e-14);
  }
}

// Three steps of LibTorch's own, on tensors of their own.
std::vector<at::Tensor> StepsOfLibTorch(const FlatParameters& flat) {
  const TrainingConfig config = Config();
  std::vector<at::Tensor> values;
  for (const NamedParameter& parameter : flat.parameters) values.push_back(parameter.value.clone());
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
  for (const at::Tensor& value : values) {
    first.push_back(at::zeros_like(value));
    second.push_back(at::zeros_like(value));
  }
  for (int step = 0; step < 3; ++step) {
    SetGradients(flat, step);
    for (size_t i = 0; i < values.size(); ++i) {
      const at::Tensor gradient = flat.parameters[i].gradient.clone();
      at::_fused_adamw_({values[i]}, {gradient}, {first[i]}, {second[i]}, {},
                        {at::full({}, step + 1, at::kFloat)}, config.learning_rate.peak, config.beta1,
                        config.beta2, values[i].dim() > 1 ? config.weight_decay : 0, config.epsilon,
                        /*amsgrad=*/false, /*maximize=*/false);
    }
  }
  return values;
}

TEST(AdamW, StepsAsLibTorchsOwn) {
  for (const auto& [type, tolerance] : {std::pair(at::kDouble, 1e-15), std::pair(at::kFloat, 5e-7)}) {
    const FlatParameters flat = SeveralParameters(type);
    const std::vector<at::Tensor> expected = StepsOfLibTorch(flat);
    const auto optimizer = Make(Config(), flat);
    for (int step = 0; step < 3; ++step) {
      SetGradients(flat, step);
      ASSERT_TRUE(optimizer->Step(static_cast<uint64_t>(step), 1).ok());
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      const NamedParameter& parameter = flat.parameters[i];
      EXPECT_LE((parameter.value - expected[i]).abs().max().to(at::kDouble).item<double>(), tolerance)
          << parameter.name << " of " << c10::toString(type);
    }
  }
}

// All values after two steps.
at::Tensor Stepped(at::ScalarType type, const std::vector<Sharding>& replicas) {
  const FlatParameters flat = SeveralParameters(type);
  std::vector<std::unique_ptr<AdamW>> optimizers;
  for (const Sharding& sharding : replicas) optimizers.push_back(Make(Config(), flat, sharding));
  for (int step = 0; step < 2; ++step) {
    SetGradients(flat, step);
    for (const auto& optimizer : optimizers) {
      EXPECT_TRUE(optimizer->Step(static_cast<uint64_t>(step), 0.7).ok());
    }
  }
  return flat.values;
}

TEST(AdamW, GivesTheSameBitsHoweverTheStateIsDivided) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const at::Tensor whole = Stepped(type, {{}});
    EXPECT_GT((whole - SeveralParameters(type).values).abs().max().to(at::kDouble).item<double>(), 0.1);
    for (const int replicas : {2, 3, 7}) {
      std::vector<Sharding> shards;
      for (int i = 0; i < replicas; ++i) shards.push_back({.count = replicas, .own = i, .divided = true});
      EXPECT_TRUE(Stepped(type, shards).equal(whole)) << replicas << " of " << c10::toString(type);
    }
  }
}

TEST(AdamW, GivesTheSameBitsWithAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> squares;
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    values.push_back(Stepped(at::kFloat, {{}}));
    const FlatParameters flat = SeveralParameters(at::kFloat);
    SetGradients(flat, 0);
    squares.push_back(*Make(Config(), flat)->SumsOfSquares());
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(values[0].equal(values[1]));
  EXPECT_TRUE(squares[0].equal(squares[1]));
}

TEST(AdamW, SumsTheSquaresOfAllGradientsInFloat64) {
  const FlatParameters flat = Parameters({{"a", {2, 2}}, {"b", {3}}}, 0, at::kFloat);
  flat.parameters[0].gradient.fill_(3);
  flat.parameters[1].gradient.fill_(1e-4);
  const auto sums = Make(Config(), flat)->SumsOfSquares();
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(sums->scalar_type(), at::kDouble);
  EXPECT_THAT(sums->sizes().vec(), ElementsAre(1, 1));
  EXPECT_NEAR(sums->item<double>(), 36 + 3e-8, 1e-12);
}

TEST(AdamW, SumsTheSquaresOfItsOwnShardsWithTheBitsThatOthersHave) {
  const FlatParameters flat = SeveralParameters(at::kDouble);
  SetGradients(flat, 0);
  const at::Tensor all = *Make(Config(), flat, {.count = 3})->SumsOfSquares();
  EXPECT_NEAR(all.sum().item<double>(), flat.gradients.square().sum().item<double>(), 1e-9);
  for (int own = 0; own < 3; ++own) {
    at::Tensor expected = at::zeros_like(all);
    expected[0][own].copy_(all[0][own]);
    const at::Tensor divided =
        *Make(Config(), flat, {.count = 3, .own = own, .divided = true})->SumsOfSquares();
    EXPECT_TRUE(divided.equal(expected)) << own;
  }
}

// Steps far below the resolution of bfloat16 near 1 add up in the float32 master.
TEST(AdamW, KeepsMastersOfBFloat16) {
  const FlatParameters flat = Parameters({{"w", {4}}}, 1, at::kBFloat16);
  const NamedParameter& parameter = flat.parameters[0];
  parameter.gradient.fill_(1);
  TrainingConfig config = Config();
  config.learning_rate.peak = 1e-4;
  const auto optimizer = Make(config, flat);
  ASSERT_TRUE(optimizer->Step(0, 1).ok());
  EXPECT_EQ(parameter.value[0].item<float>(), 1) << "too small a step to see";
  for (uint64_t i = 1; i < 200; ++i) ASSERT_TRUE(optimizer->Step(i, 1).ok());
  EXPECT_NEAR(parameter.value[0].item<float>(), 0.98, 0.005);
}

// Through what a checkpoint holds of it, from and to any division.
TEST(AdamW, GoesOnFromItsState) {
  const auto shards = [](int count) {
    std::vector<Sharding> replicas;
    for (int i = 0; i < count; ++i) replicas.push_back({.count = count, .own = i, .divided = count > 1});
    return replicas;
  };
  for (const auto& [before, after] : {std::pair(1, 1), {1, 3}, {3, 1}, {3, 2}, {2, 5}}) {
    const FlatParameters whole = SeveralParameters(at::kDouble);
    const FlatParameters resumed = SeveralParameters(at::kDouble);
    std::vector<std::unique_ptr<AdamW>> straight;
    for (const Sharding& sharding : shards(before)) straight.push_back(Make(Config(), whole, sharding));
    const auto step = [](const FlatParameters& flat, const auto& optimizers, int number) {
      SetGradients(flat, number);
      for (const auto& optimizer : optimizers) {
        ASSERT_TRUE(optimizer->Step(static_cast<uint64_t>(number), 1).ok());
      }
    };
    for (int number = 0; number < 2; ++number) step(whole, straight, number);

    const TemporaryFolder folder;
    const std::string path = folder.Path("state.safetensors");
    std::vector<TensorFile> files;
    for (const auto& optimizer : straight) {
      ASSERT_TRUE(WriteTensorFile(path, EntriesOf(optimizer->State(true))).ok());
      files.push_back(*TensorFile::Open(path));
    }
    std::vector<std::unique_ptr<AdamW>> resuming;
    for (const Sharding& sharding : shards(after)) {
      resuming.push_back(Make(Config(), resumed, sharding));
      std::vector<MissingPiece> missing = PiecesToRead(resuming.back()->State(true));
      for (const TensorFile& file : files) ASSERT_TRUE(ReadPieces(file, missing).ok());
      EXPECT_TRUE(missing.empty()) << before << " to " << after;
    }
    resumed.values.copy_(whole.values);
    for (int number = 2; number < 4; ++number) {
      step(whole, straight, number);
      step(resumed, resuming, number);
    }
    EXPECT_TRUE(resumed.values.equal(whole.values)) << before << " to " << after;
  }
}

TEST(AdamW, NamesItsStateOnce) {
  const FlatParameters wide = Parameters({{"w", {1}}}, 1);
  const FlatParameters narrow = Parameters({{"n", {1}}}, 1, at::kBFloat16);
  const auto optimizer = *AdamW::Create(Config(), {&wide, &narrow});
  std::set<std::string> names;
  for (const TensorPiece& piece : optimizer->State(true)) names.insert(piece.slice.name);
  EXPECT_EQ(names.size(), optimizer->State(true).size());
  EXPECT_TRUE(names.contains("optimizer.master.n"));
  EXPECT_FALSE(names.contains("optimizer.master.w"));
}

// What the planner counts on (execution.md, section 8): the state divided by the replicas, and nothing
// beside.
TEST(AdamW, HoldsTheStateOfItsShardAlone) {
  // How the step is taken: the scale, and whether it is.
  constexpr int64_t kScalarBytes = sizeof(double) + sizeof(bool);
  CountCpuTensors();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const FlatParameters flat = SeveralParameters(type);
    const auto bytes = [&](const Sharding& sharding) {
      const int64_t before = TensorBytes(at::kCPU);
      const auto optimizer = Make(Config(), flat, sharding);
      const int64_t held = TensorBytes(at::kCPU) - before;
      ResetPeakTensorBytes(at::kCPU);
      EXPECT_TRUE(optimizer->Step(0, 1).ok());
      EXPECT_LE(PeakTensorBytes(at::kCPU), before + held + kScalarBytes) << "a step needs no memory";
      return held;
    };
    const auto elements = static_cast<int64_t>(flat.values.numel());
    const int64_t each = type == at::kFloat ? 8 : 12;
    EXPECT_EQ(bytes({}), elements * each);
    EXPECT_EQ(bytes({.count = 4, .own = 1, .divided = true}), elements / 4 * each);
  }
}

}  // namespace
}  // namespace penstock::worker
