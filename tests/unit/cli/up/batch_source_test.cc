#include "planner/cli/up/batch_source.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace penstock::cli {
namespace {

class FakeDataset : public IndexedDataset {
 public:
  explicit FakeDataset(std::vector<SampleLength> lengths) : lengths_(std::move(lengths)) {}
  size_t size() const override { return lengths_.size(); }
  size_t bytes_per_token() const override { return 2; }
  SampleLength Length(size_t sample) const override { return lengths_[sample]; }
  absl::StatusOr<std::vector<int32_t>> Tokens(size_t) const override { return std::vector<int32_t>(); }

 private:
  std::vector<SampleLength> lengths_;
};

const FakeDataset& Dataset() {
  static const auto* dataset = new FakeDataset({{0, 5}, {10, 3}, {30, 7}, {0, 40}, {15, 10}});
  return *dataset;
}

ShuffleOptions Options(uint32_t global_batch, uint32_t max_length, uint64_t seed) {
  return {.global_batch = global_batch,
          .seed = seed,
          .cut = {.limits = {.max_length = max_length, .max_input = 0, .max_target = 0}}};
}

TEST(BatchSourceTest, ConsecutiveBatchesWalkTheDataset) {
  const auto source = ShuffledBatches(Dataset(), Options(2, 100, 1));
  std::multiset<uint64_t> seen;
  for (uint64_t iteration = 0; iteration < 5; ++iteration) {
    const v1::Batch batch = source->Make(iteration);
    EXPECT_EQ(batch.iteration(), iteration);
    ASSERT_EQ(batch.samples_size(), 2);
    for (const v1::Sample& sample : batch.samples()) {
      seen.insert(sample.sample_id());
      EXPECT_EQ(sample.input_tokens(), Dataset().Length(sample.sample_id()).input);
      EXPECT_EQ(sample.target_tokens(), Dataset().Length(sample.sample_id()).target);
    }
  }
  for (uint64_t id = 0; id < 5; ++id) EXPECT_EQ(seen.count(id), 2) << "sample " << id;
}

TEST(BatchSourceTest, LongSamplesAreCutAndKeepTheirTarget) {
  const auto source = ShuffledBatches(Dataset(), Options(5, 20, 1));
  const v1::Batch batch = source->Make(0);
  for (const v1::Sample& sample : batch.samples()) {
    const SampleLength whole = Dataset().Length(sample.sample_id());
    EXPECT_EQ(sample.target_tokens(), std::min(whole.target, 20U));
    EXPECT_EQ(sample.input_tokens() + sample.target_tokens(), std::min(whole.input + whole.target, 20U));
  }
}

TEST(BatchSourceTest, ARestartedSourceMakesTheSameBatch) {
  const auto walked = ShuffledBatches(Dataset(), Options(3, 100, 9));
  for (uint64_t iteration = 0; iteration < 7; ++iteration) walked->Make(iteration);
  const auto restarted = ShuffledBatches(Dataset(), Options(3, 100, 9));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(walked->Make(7), restarted->Make(7)));
}

TEST(BatchSourceTest, EachDatasetOfAMixtureIsWalkedThroughByItself) {
  // 3 samples of each batch of 4 are of the second one, of which two samples are short enough.
  const FakeDataset one({{0, 5}});
  const ShuffleOptions options = {
      .global_batch = 4, .seed = 3, .cut = {.limits = {.max_length = 20, .cut = Cut::kDrop}}};
  const auto source = MixedBatches({{&one, 1}, {&Dataset(), 3}}, options);
  std::multiset<uint64_t> seen;
  for (uint64_t iteration = 0; iteration < 2; ++iteration) {
    const v1::Batch batch = source->Make(iteration);
    for (const v1::Sample& sample : batch.samples()) seen.insert(sample.sample_id());
  }
  EXPECT_EQ(seen, (std::multiset<uint64_t>{0, 0, 1, 1, 1, 2, 2, 2}));
}

TEST(BatchSourceTest, SidesOfAnEncoderDecoderSampleAreCutApart) {
  const SampleCut cut = {.architecture = v1::ARCHITECTURE_T5,
                         .limits = {.max_length = 8, .max_input = 20, .max_target = 0}};
  const auto source = ShuffledBatches(Dataset(), {.global_batch = 5, .seed = 1, .cut = cut});
  const v1::Batch batch = source->Make(0);
  for (const v1::Sample& sample : batch.samples()) {
    const SampleLength whole = Dataset().Length(sample.sample_id());
    EXPECT_EQ(sample.input_tokens(), std::min(whole.input, 20U));
    EXPECT_EQ(sample.target_tokens(), std::min(whole.target, 8U));
  }
}

TEST(BatchSourceTest, RowsFollowEachOtherAndStartOver) {
  const auto source = RowBatches({{1, 1}, {2, 2}, {3, 3}, {4, 90}, {5, 5}}, {1, 3},
                                 {.limits = {.max_length = 50, .max_input = 0, .max_target = 0}});
  const std::vector<std::vector<uint64_t>> rows = {{1, 2}, {3, 4}, {0, 1}, {2, 3}};
  for (uint64_t iteration = 0; iteration < rows.size(); ++iteration) {
    const v1::Batch batch = source->Make(iteration);
    EXPECT_EQ(batch.iteration(), iteration);
    ASSERT_EQ(batch.samples_size(), 2);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(batch.samples(i).sample_id(), rows[iteration][static_cast<size_t>(i)]);
    }
  }
  EXPECT_EQ(source->Make(1).samples(0).target_tokens(), 50);
}

TEST(BatchSourceTest, BatchesAreFullOfWhatIsNotLeftOut) {
  ShuffleOptions options = Options(3, 20, 1);
  options.cut.limits.cut = Cut::kDrop;
  const auto source = ShuffledBatches(Dataset(), options);
  std::multiset<uint64_t> seen;
  for (uint64_t iteration = 0; iteration < 4; ++iteration) {
    const v1::Batch batch = source->Make(iteration);
    ASSERT_EQ(batch.samples_size(), 3);
    for (const v1::Sample& sample : batch.samples()) {
      seen.insert(sample.sample_id());
      EXPECT_EQ(sample.input_tokens(), Dataset().Length(sample.sample_id()).input);
    }
  }
  // Two samples fit: six times each.
  EXPECT_EQ(seen.count(0), 6u);
  EXPECT_EQ(seen.count(1), 6u);
}

TEST(BatchSourceTest, RowsThatAreLeftOutAreMissing) {
  const auto source =
      RowBatches({{1, 1}, {2, 2}, {4, 90}}, {0, 3}, {.limits = {.max_length = 50, .cut = Cut::kDrop}});
  const v1::Batch batch = source->Make(0);
  ASSERT_EQ(batch.samples_size(), 2);
  EXPECT_EQ(batch.samples(1).sample_id(), 1u);
}

}  // namespace
}  // namespace penstock::cli
