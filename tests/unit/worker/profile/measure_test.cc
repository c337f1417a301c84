#include "worker/profile/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/files/files.h"
#include "planner/core/contract/check_profile.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/profile/work_clock.h"
#include "worker/profile/measure_link.h"
#include "worker/profile/memory.h"
#include "worker/profile/profile_file.h"

namespace penstock::worker {
namespace {

constexpr int64_t kHeads = 4;
constexpr double kVocab = 512;
constexpr int64_t kLongest = 128;

ModelConfig Config(Architecture architecture, int64_t hidden) {
  ModelConfig config;
  config.layers = 2;
  config.hidden = hidden;
  config.heads = kHeads;
  config.ffn = 4 * hidden;
  config.vocab = static_cast<int64_t>(kVocab);
  config.max_sequence_length = kLongest;
  config.architecture = architecture;
  if (architecture == Architecture::kT5) {
    config.encoder_layers = 1;
    config.feed_forward = FeedForward::kRelu;
  }
  return config;
}

// With times that are the work of LibTorch's operators: what is expected below is what passes have to do.
MeasuredProfile Measure(Architecture architecture, int64_t hidden, std::vector<int> tensor_degrees = {}) {
  const WorkClock clock;
  const auto profile = MeasureProfile(
      Config(architecture, hidden),
      {.seconds = architecture == Architecture::kT5 ? 3.0 : 2.0, .tensor_degrees = std::move(tensor_degrees)},
      MeasuredDevice(), [&] { return clock.Now(); });
  EXPECT_TRUE(profile.ok()) << profile.status();
  return profile.ok() ? *profile : MeasuredProfile();
}

TokenFigures Target(double rows, double length) {
  return {.target = rows * length, .target_square = rows * length * length};
}

TokenFigures Pair(double rows, double source, double target) {
  return {.source = rows * source,
          .target = rows * target,
          .source_square = rows * source * source,
          .target_square = rows * target * target,
          .cross = rows * source * target,
          .source_call_square = source * source,
          .target_call_square = target * target};
}

// Multiply-adds of a forward pass.
// Query, key, value and output, and a feed-forward part of four times the width.
double LayerProducts(double hidden, double tokens) { return 12 * hidden * hidden * tokens; }
double AttentionProducts(double hidden, double square) { return 2 * hidden * square; }
// Query and output of the target, key and value of the source, and the attention.
double CrossProducts(double hidden, const TokenFigures& tokens) {
  return 2 * hidden * hidden * (tokens.target + tokens.source) + AttentionProducts(hidden, tokens.cross);
}

// The products, and a few elements written beside each.
void ExpectTime(double time, double products) {
  EXPECT_GT(time, 0.98 * products);
  EXPECT_LT(time, 1.08 * products);
}

void ExpectRatiosOfALayer(const MeasuredLayer& layer) {
  EXPECT_NEAR(layer.backward_ratio_none, 2.03, 0.03) << "two products for each of the forward pass";
  EXPECT_NEAR(layer.backward_ratio_full, layer.backward_ratio_none + 1, 0.01) << "the forward pass again";
  EXPECT_GT(layer.backward_ratio_selective, layer.backward_ratio_none) << "the attention again";
  EXPECT_LT(layer.backward_ratio_selective, layer.backward_ratio_none + 0.15);
  EXPECT_GT(layer.backward_input_share, 0.5) << "a product for the input and one for the weight";
  EXPECT_LT(layer.backward_input_share, 0.6) << "and the attention's, which has no weight";
}

TEST(MeasureProfile, TheTimesOfAGptAreThoseOfItsPasses) {
  for (const int64_t hidden : {64, 128}) {
    const MeasuredProfile profile = Measure(Architecture::kGpt, hidden);
    const auto width = static_cast<double>(hidden);
    EXPECT_FALSE(profile.encoder.has_value());
    EXPECT_EQ(profile.layer.forward.target_call_square_ns, 0) << "scores have no bias";
    for (const TokenFigures& tokens : {Target(1, 16), Target(16, 16), Target(4, 128), Target(16, 128)}) {
      ExpectTime(profile.layer.forward(tokens),
                 LayerProducts(width, tokens.target) + AttentionProducts(width, tokens.target_square));
      ASSERT_TRUE(profile.layer.backward.has_value());
      ExpectTime(profile.layer.backward->weight(tokens), LayerProducts(width, tokens.target));
      // Of attention five products where the forward pass has two: scores once more, and three gradients.
      ExpectTime(profile.layer.backward->input(tokens),
                 LayerProducts(width, tokens.target) + 2.5 * AttentionProducts(width, tokens.target_square));
      // The logits and the gradients of both their factors, which are there when the forward pass ends.
      ExpectTime(profile.head.forward(tokens), 3 * width * kVocab * tokens.target);
      EXPECT_GT(profile.embedding_forward(tokens), 2 * width * tokens.target)
          << "an element is there for each";
      EXPECT_LT(profile.embedding_forward(tokens), 6 * width * tokens.target);
    }
    ExpectRatiosOfALayer(profile.layer);
    EXPECT_LT(profile.head.backward_ratio_none, 0.01) << "the head's work is done when its forward pass ends";
    EXPECT_EQ(profile.head.backward_input_share, 1);
    EXPECT_GT(profile.step.parameter_byte_ns, 0);
    EXPECT_LT(profile.step.parameter_byte_ns, 1);
    EXPECT_GT(profile.step.fixed_ns, 0) << "the norm of all gradients, whatever they are";
    EXPECT_GT(profile.link.bytes_per_second, 1e6);
    EXPECT_GT(profile.link.latency_ns, 0);
    EXPECT_GT(profile.memory_bytes, 1 << 20);
  }
}

TEST(MeasureProfile, SharesOfContextRanksHaveTheTimesOfTheirPasses) {
  constexpr double kHidden = 64;
  const WorkClock clock;
  const auto profile =
      MeasureProfile(Config(Architecture::kGpt, 64), {.seconds = 2.0, .context_ranks = {2, 4}},
                     MeasuredDevice(), [&] { return clock.Now(); });
  ASSERT_TRUE(profile.ok()) << profile.status();
  // The clock counts three quarters and less of the squares of divided rows, and all of whole ones.
  for (const TokenFigures& tokens : {Target(4, 128), Target(16, 128)}) {
    const double products =
        LayerProducts(kHidden, tokens.target) + AttentionProducts(kHidden, tokens.target_square);
    EXPECT_NEAR(profile->layer.forward(tokens) / products, 1, 0.15);
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      MeasureProfile(Config(Architecture::kT5, 64), {.context_ranks = {2}}).status()));
}

TEST(MeasureProfile, LayersWithoutExpertsHaveTimesOfTheirOwn) {
  constexpr int64_t kHidden = 64;
  ModelConfig config = Config(Architecture::kGpt, kHidden);
  config.feed_forward_biases = Biases::kNone;
  config.experts = 4;
  config.experts_per_token = 2;
  config.dense_layers = {0};
  config.dense_ffn = 12 * kHidden;
  config.router_z_loss = 0.1;
  const WorkClock clock;
  const auto profile = MeasureProfile(config, {.seconds = 2.0, .tensor_degrees = {2}}, MeasuredDevice(),
                                      [&] { return clock.Now(); });
  ASSERT_TRUE(profile.ok()) << profile.status();
  ASSERT_TRUE(profile->dense.has_value());
  EXPECT_EQ(profile->dense->parameter_bytes, DenseParameterBytes(config));
  EXPECT_NEAR(profile->dense->bytes.stored_full.target / DenseLayerBytes(config).stored_full.target, 1, 0.01);
  EXPECT_EQ(profile->layer.parameter_bytes, DecoderParameterBytes(config));
  for (const TokenFigures& tokens : {Target(4, 128), Target(16, 128)}) {
    const double attention =
        4 * kHidden * kHidden * tokens.target + AttentionProducts(kHidden, tokens.target_square);
    // Two matrices of 12 times the width; of each of two experts two of four times, and the router.
    ExpectTime(profile->dense->forward(tokens), attention + 24 * kHidden * kHidden * tokens.target);
    EXPECT_GT(profile->layer.forward(tokens), attention + 16 * kHidden * kHidden * tokens.target);
    EXPECT_LT(profile->layer.forward(tokens), 1.3 * (attention + 16 * kHidden * kHidden * tokens.target));
  }
  ASSERT_EQ(profile->dense->tensor.size(), 1U);
  EXPECT_NEAR(profile->dense->tensor.front().efficiency, 1, 0.1);
}

TEST(MeasureProfile, TheTimesOfAT5AreThoseOfItsTwoStacks) {
  constexpr double kWidth = 64;
  // What the softmax of scores with a bias writes, for each head, beside a layer's own 2 * 64 multiply-adds.
  constexpr double kWrittenForAScore = 6 * kHeads;
  const MeasuredProfile profile = Measure(Architecture::kT5, static_cast<int64_t>(kWidth));
  ASSERT_TRUE(profile.encoder.has_value());
  const MeasuredTime& encoder = profile.encoder->forward;
  const MeasuredTime& decoder = profile.layer.forward;
  EXPECT_EQ(encoder.target_token_ns + encoder.target_square_ns + encoder.cross_ns, 0);
  EXPECT_EQ(encoder.target_call_square_ns + decoder.source_call_square_ns, 0);
  const auto layer = [&](double tokens, double square) {
    return LayerProducts(kWidth, tokens) + AttentionProducts(kWidth, square) + kWrittenForAScore * square;
  };
  for (const TokenFigures& tokens :
       {Pair(1, 16, 16), Pair(4, 32, 128), Pair(4, 128, 32), Pair(16, 128, 128)}) {
    ExpectTime(encoder(tokens), layer(tokens.source, tokens.source_square));
    ExpectTime(decoder(tokens), layer(tokens.target, tokens.target_square) + CrossProducts(kWidth, tokens));
  }
  ExpectRatiosOfALayer(*profile.encoder);
  ExpectRatiosOfALayer(profile.layer);
  EXPECT_GT(profile.embedding_forward(Pair(4, 64, 0)), 0);
}

// Norms and the residual stream are of a rank's own tokens, and the products of its heads, columns and tokens
// of the vocabulary: nothing but a few copies is there on every rank.
void ExpectDivided(const MeasuredLayer& layer, const std::vector<TokenFigures>& shapes) {
  ASSERT_EQ(layer.tensor.size(), 2u);
  for (const TensorTime& rank : layer.tensor) {
    EXPECT_GT(rank.efficiency, 0.9) << rank.degree;
    EXPECT_LT(rank.efficiency, 1.01) << rank.degree;
    for (const TokenFigures& tokens : shapes) {
      EXPECT_NEAR(rank.degree * rank.forward(tokens) / layer.forward(tokens), 1 / rank.efficiency, 0.06)
          << rank.degree << " ranks, " << tokens.source << " and " << tokens.target << " tokens";
    }
  }
  EXPECT_EQ(layer.tensor[0].degree, 2);
  EXPECT_EQ(layer.tensor[1].degree, 4);
}

TEST(MeasureProfile, ATensorRankTakesItsPartOfAGptsLayers) {
  const MeasuredProfile profile = Measure(Architecture::kGpt, 64, {1, 2, 4});
  const std::vector<TokenFigures> shapes = {Target(1, 16), Target(16, 16), Target(4, 128), Target(16, 128)};
  ExpectDivided(profile.layer, shapes);
  ExpectDivided(profile.head, shapes);
  EXPECT_GT(profile.collective.link.bytes_per_second, 1e6);
  EXPECT_GT(profile.collective.link.latency_ns, 0);
  EXPECT_GE(profile.collective.overlap, 0);
  EXPECT_LE(profile.collective.overlap, 1);
}

TEST(MeasureCollective, IsOverAsManyRanksAsThereAre) {
  const auto two = MeasureCollective(MeasuredDevice(), 3);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_TRUE(two->by_ranks.empty());
  const auto eight = MeasureCollective(MeasuredDevice(), 8);
  ASSERT_TRUE(eight.ok()) << eight.status();
  ASSERT_EQ(eight->by_ranks.size(), 2U);
  for (const CollectiveOfRanks& measured : eight->by_ranks) {
    EXPECT_GT(measured.link.bytes_per_second, 1e6) << measured.ranks;
    EXPECT_GT(measured.link.latency_ns, 0) << measured.ranks;
  }
  EXPECT_EQ(eight->by_ranks[0].ranks, 4U);
  EXPECT_EQ(eight->by_ranks[1].ranks, 8U);
}

TEST(MeasureProfile, TheLoadOfAnotherLeavesLinksOut) {
  const auto measured = MeasureProfile(Config(Architecture::kGpt, 32), {.seconds = 0.05, .links = false});
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_GT(measured->layer.forward(Target(4, 128)), 0);
  EXPECT_EQ(measured->link.bytes_per_second, 0);
  EXPECT_EQ(measured->collective.link.bytes_per_second, 0);
}

TEST(MeasureProfile, PlannersTakeWhatWasMeasured) {
  for (const Architecture architecture : {Architecture::kGpt, Architecture::kT5}) {
    const auto measured =
        MeasureProfile(Config(architecture, 32), {.seconds = 0.1, .tensor_degrees = {2, 4}});
    ASSERT_TRUE(measured.ok()) << measured.status();
    const v1::CostProfile profile = ToProto(*measured, v1::ModelSpec());
    EXPECT_EQ(profile.layers(0).tensor_size(), 2);
    EXPECT_EQ(core::CheckProfile(profile), absl::OkStatus());
  }
}

TEST(MeasureProfile, ATensorRankTakesItsPartOfAT5sLayers) {
  const MeasuredProfile profile = Measure(Architecture::kT5, 64, {2, 4});
  const std::vector<TokenFigures> shapes = {Pair(1, 16, 16), Pair(4, 32, 128), Pair(16, 128, 128)};
  ASSERT_TRUE(profile.encoder.has_value());
  ExpectDivided(*profile.encoder, shapes);
  ExpectDivided(profile.layer, shapes);
  ExpectDivided(profile.head, shapes);
}

TEST(MeasureProfile, KeysAndValuesThatSeveralTensorRanksHaveAreEachOnesWork) {
  ModelConfig config = Config(Architecture::kGpt, 64);
  config.key_value_heads = 1;
  const WorkClock clock;
  const auto profile = MeasureProfile(config, {.seconds = 1, .tensor_degrees = {4}}, MeasuredDevice(),
                                      [&] { return clock.Now(); });
  ASSERT_TRUE(profile.ok()) << profile.status();
  // Of 10.5 products of the width, 0.5 are keys and values; four times 2.5 + 0.5 in place of 10.5.
  ASSERT_EQ(profile->layer.tensor.size(), 1u);
  EXPECT_NEAR(profile->layer.tensor[0].efficiency, 10.5 / 12, 0.03);
}

MeasuredProfile MeasureKept(const std::string& path) {
  absl::StatusOr<KeptTimes> kept = KeptTimes::Open(path, "this test");
  EXPECT_TRUE(kept.ok()) << kept.status();
  const WorkClock clock;
  const auto profile =
      MeasureProfile(Config(Architecture::kGpt, 64), {.seconds = 2, .tensor_degrees = {2}, .kept = &*kept},
                     MeasuredDevice(), [&] { return clock.Now(); });
  EXPECT_TRUE(profile.ok()) << profile.status();
  return profile.ok() ? *profile : MeasuredProfile();
}

int64_t LinesOf(const std::string& path) { return std::ranges::count(ReadFile(path).value_or(""), '\n'); }

// What is measured is written behind what was kept: as many lines say that nothing was measured twice.
TEST(MeasureProfile, WhatAnInterruptedMeasurementFoundIsNotMeasuredAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("so-far");
  const MeasuredProfile whole = MeasureKept(path);
  const int64_t lines = LinesOf(path);
  EXPECT_GT(lines, 12) << "four shapes of the layer, the head and the embedding each";
  const MeasuredProfile kept = MeasureKept(path);
  EXPECT_EQ(LinesOf(path), lines);
  // As though it had been interrupted in the middle of its lines.
  const std::string contents = ReadFile(path).value_or("");
  ASSERT_TRUE(WriteFileAtomically(path, contents.substr(0, contents.size() / 2)).ok());
  const MeasuredProfile in_two = MeasureKept(path);
  // There may be time for a few more visits to shapes, or for fewer.
  EXPECT_NEAR(static_cast<double>(LinesOf(path)), static_cast<double>(lines),
              0.03 * static_cast<double>(lines));
  for (const MeasuredProfile* const profile : {&kept, &in_two}) {
    EXPECT_DOUBLE_EQ(profile->layer.forward.target_token_ns, whole.layer.forward.target_token_ns);
    EXPECT_DOUBLE_EQ(profile->layer.backward_ratio_full, whole.layer.backward_ratio_full);
    EXPECT_DOUBLE_EQ(profile->head.forward.target_token_ns, whole.head.forward.target_token_ns);
    ASSERT_EQ(profile->layer.tensor.size(), 1);
    EXPECT_DOUBLE_EQ(profile->layer.tensor[0].efficiency, whole.layer.tensor[0].efficiency);
  }
}

TEST(MeasureProfile, ADegreeThatCannotDivideTheModelIsRefused) {
  const ModelConfig config = Config(Architecture::kGpt, 32);
  EXPECT_EQ(DegreesThatDivide(config, {2, 3, 4, 8}), (std::vector<int>{2, 4}));
  const absl::Status status = MeasureProfile(config, {.seconds = 0.05, .tensor_degrees = {3}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("2 and 4"), std::string::npos) << status;
}

// On a GPU a time that is read before it is done says how long starting its kernels took.
TEST(MeasureProfile, WaitsForTheDeviceBeforeEachReading) {
  int waits = 0;
  int readings = 0;
  int early = 0;
  const MeasuredDevice device = {.wait = [&] { ++waits; }, .memory_bytes = 12345};
  const WorkClock work;
  const NanosecondClock clock = [&] {
    ++readings;
    if (readings != waits) ++early;
    return work.Now();
  };
  const auto profile = MeasureProfile(Config(Architecture::kGpt, 32), {.seconds = 0.05}, device, clock);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_GT(readings, 100);
  EXPECT_EQ(early, 0);
  EXPECT_EQ(profile->memory_bytes, 12345) << "is the device's";
}

TEST(MeasuredDevice, OnCpuThereIsNothingToWaitForAndTheMemoryIsTheMachines) {
  const auto device = OpenMeasuredDevice("cpu");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE(device->place.is_cpu());
  device->wait();
  EXPECT_EQ(device->memory_bytes, HostMemoryBytes());
}

TEST(MeasuredDevice, AGpuThatIsNotThereIsNamed) {
  for (const char* name : {"cuda:99", "tpu:0"}) {
    const absl::Status status = OpenMeasuredDevice(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(std::string("--device ") + name), std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace penstock::worker
