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
  std::vector<int32_t> Tokens(size_t) const override { return {}; }

 private:
  std::vector<SampleLength> lengths_;
};

const FakeDataset& Dataset() {
  static const auto* dataset = new FakeDataset({{0, 5}, {10, 3}, {30, 7}, {0, 40}, {15, 10}});
  return *dataset;
}

TEST(BatchSourceTest, ConsecutiveBatchesWalkTheDataset) {
  BatchSource source(Dataset(), {.global_batch = 2, .max_length = 100, .seed = 1});
  std::multiset<uint64_t> seen;
  for (uint64_t iteration = 0; iteration < 5; ++iteration) {
    const v1::Batch batch = source.Make(iteration);
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
  BatchSource source(Dataset(), {.global_batch = 5, .max_length = 20, .seed = 1});
  const v1::Batch batch = source.Make(0);
  for (const v1::Sample& sample : batch.samples()) {
    const SampleLength whole = Dataset().Length(sample.sample_id());
    EXPECT_EQ(sample.target_tokens(), std::min(whole.target, 20U));
    EXPECT_EQ(sample.input_tokens() + sample.target_tokens(), std::min(whole.input + whole.target, 20U));
  }
}

TEST(BatchSourceTest, ARestartedSourceMakesTheSameBatch) {
  const BatchSourceOptions options = {.global_batch = 3, .max_length = 100, .seed = 9};
  BatchSource walked(Dataset(), options);
  for (uint64_t iteration = 0; iteration < 7; ++iteration) walked.Make(iteration);
  BatchSource restarted(Dataset(), options);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(walked.Make(7), restarted.Make(7)));
}

}  // namespace
}  // namespace penstock::cli
