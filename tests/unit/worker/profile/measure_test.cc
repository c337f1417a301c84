#include "worker/profile/measure.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

namespace penstock::worker {
namespace {

ModelConfig Config(Architecture architecture, int64_t hidden) {
  ModelConfig config;
  config.layers = 2;
  config.hidden = hidden;
  config.heads = 4;
  config.ffn = 4 * hidden;
  config.vocab = 512;
  config.max_sequence_length = 256;
  config.architecture = architecture;
  if (architecture == Architecture::kT5) {
    config.encoder_layers = 1;
    config.feed_forward = FeedForward::kRelu;
  }
  return config;
}

// What this process computes, whatever else runs on the machine.
double ProcessNanoseconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

MeasuredProfile Measure(Architecture architecture, int64_t hidden) {
  const auto profile = MeasureProfile(Config(architecture, hidden), /*seconds=*/2, /*threads=*/1,
                                      MeasuredDevice(), ProcessNanoseconds);
  EXPECT_TRUE(profile.ok()) << profile.status();
  return profile.ok() ? *profile : MeasuredProfile();
}

TokenFigures Target(double rows, double length) {
  return {.target = rows * length, .target_square = rows * length * length};
}

TokenFigures Pair(double rows, double source, double target) {
  return {rows * source, rows * target, rows * source * source, rows * target * target,
          rows * source * target};
}

// Bounds that hold on a busy machine too, and that no layer passes whose passes are not what they are taken
// for.
void ExpectRatiosOfALayer(const MeasuredLayer& layer) {
  EXPECT_GT(layer.backward_ratio_none, 1) << "two products for each of the forward pass";
  EXPECT_LT(layer.backward_ratio_none, 5);
  EXPECT_GT(layer.backward_ratio_full, layer.backward_ratio_none + 0.5) << "the forward pass again";
  EXPECT_LT(layer.backward_ratio_full, layer.backward_ratio_none + 2);
  EXPECT_GT(layer.backward_ratio_selective, 0.85 * layer.backward_ratio_none) << "the attention again";
  EXPECT_LT(layer.backward_ratio_selective, layer.backward_ratio_full);
  EXPECT_GT(layer.backward_input_share, 0.4);
  EXPECT_LT(layer.backward_input_share, 0.9);
}

TEST(MeasureProfile, FindsTimesThatCanBe) {
  const MeasuredProfile narrow = Measure(Architecture::kGpt, 64);
  const MeasuredProfile wide = Measure(Architecture::kGpt, 256);
  for (const MeasuredProfile& profile : {narrow, wide}) {
    EXPECT_FALSE(profile.encoder.has_value());
    EXPECT_GT(profile.layer.forward(Target(16, 256)), 2 * profile.layer.forward(Target(4, 256)));
    EXPECT_GE(profile.layer.forward(Target(4, 256)), profile.layer.forward(Target(16, 64)));
    EXPECT_GT(profile.head.forward(Target(16, 256)), 2 * profile.head.forward(Target(4, 256)));
    EXPECT_GT(profile.embedding_forward(Target(16, 256)), 0);
    EXPECT_LT(profile.head.backward_ratio_none, 0.2) << "the head's work is done when its forward pass ends";
    ExpectRatiosOfALayer(profile.layer);
    EXPECT_GT(profile.optimizer_ns_per_parameter_byte, 0);
    EXPECT_LT(profile.optimizer_ns_per_parameter_byte, 1000);
    EXPECT_GT(profile.link.bytes_per_second, 1e6);
    EXPECT_GT(profile.link.latency_ns, 0);
    EXPECT_GT(profile.memory_bytes, 1 << 20);
  }
  // A layer of four times the width has sixteen times the products, and a head four times.
  EXPECT_GT(wide.layer.forward(Target(4, 256)), 4 * narrow.layer.forward(Target(4, 256)));
  EXPECT_LT(wide.layer.forward(Target(4, 256)), 40 * narrow.layer.forward(Target(4, 256)));
  EXPECT_GT(wide.head.forward(Target(4, 256)), 1.2 * narrow.head.forward(Target(4, 256)));
}

TEST(MeasureProfile, FindsTheTermsOfT5) {
  const MeasuredProfile profile = Measure(Architecture::kT5, 128);
  ASSERT_TRUE(profile.encoder.has_value());
  const MeasuredTime& encoder = profile.encoder->forward;
  const MeasuredTime& decoder = profile.layer.forward;
  EXPECT_EQ(encoder.target_token_ns + encoder.target_square_ns + encoder.cross_ns, 0);
  EXPECT_GT(encoder(Pair(4, 256, 16)), 3 * encoder(Pair(1, 256, 16)) * 0.7);
  EXPECT_GT(decoder(Pair(4, 64, 256)), 2 * decoder(Pair(1, 64, 256)));
  EXPECT_GT(decoder(Pair(4, 256, 256)), decoder(Pair(4, 16, 256)))
      << "keys and values of the source take time";
  // A decoder layer is an encoder layer and cross-attention; measured one after the other, on a busy machine.
  EXPECT_GT(1.5 * decoder(Pair(4, 256, 256)), encoder(Pair(4, 256, 256)));
  EXPECT_LT(decoder(Pair(4, 256, 256)), 5 * encoder(Pair(4, 256, 256)));
  ExpectRatiosOfALayer(*profile.encoder);
  ExpectRatiosOfALayer(profile.layer);
  EXPECT_GT(profile.embedding_forward(Pair(4, 64, 0)), 0);
}

// On a GPU a time that is read before it is done says how long starting its kernels took.
TEST(MeasureProfile, WaitsForTheDeviceBeforeEachReading) {
  int waits = 0;
  int readings = 0;
  int early = 0;
  const MeasuredDevice device = {.wait = [&] { ++waits; }, .memory_bytes = 12345};
  const NanosecondClock clock = [&] {
    ++readings;
    if (readings != waits) ++early;
    return ProcessNanoseconds();
  };
  const auto profile =
      MeasureProfile(Config(Architecture::kGpt, 32), /*seconds=*/0.05, /*threads=*/1, device, clock);
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
