#include "worker/profile/measure.h"

#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

TEST(MeasureProfile, FindsTimesThatCanBe) {
  const ModelConfig config = {.layers = 2,
                              .hidden = 64,
                              .heads = 4,
                              .attention_inner = 0,
                              .ffn = 256,
                              .vocab = 512,
                              .max_sequence_length = 256,
                              .dtype = DataType::kFloat32};
  const auto profile = MeasureProfile(config, /*seconds=*/0.5, /*threads=*/1);
  ASSERT_TRUE(profile.ok()) << profile.status();
  // Four times the tokens take longer, and longer rows than shorter ones.
  EXPECT_GT(profile->layer.forward(4096, 1 << 20), profile->layer.forward(1024, 1 << 18));
  EXPECT_GT(profile->head.forward(4096, 0), profile->head.forward(1024, 0));
  EXPECT_GT(profile->embedding_forward(4096, 0), 0);
  EXPECT_GT(profile->layer.backward_ratio_none, 0.5);
  EXPECT_GT(profile->layer.backward_ratio_full, profile->layer.backward_ratio_none);
  EXPECT_GT(profile->optimizer_ns_per_parameter_byte, 0);
  EXPECT_GT(profile->link.bytes_per_second, 1e6);
  EXPECT_GT(profile->link.latency_ns, 0);
  EXPECT_GT(profile->memory_bytes, 1 << 20);
}

}  // namespace
}  // namespace penstock::worker
