// PREFIX.weights, as IndexedDatasetWriter writes and IndexedDataset reads it.
#include "common/dataset/token_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/dataset/indexed_dataset.h"
#include "common/dataset/indexed_dataset_writer.h"
#include "common/dataset/joined_dataset.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class TokenWeightsTest : public testing::Test {
 protected:
  using Weights = std::vector<std::vector<float>>;

  // Samples of one input token and as many target tokens as they have weights, or two.
  std::string Write(const std::string& name, const Weights& samples) {
    auto writer = *IndexedDatasetWriter::Create(folder_.Path(name), {});
    for (const std::vector<float>& weights : samples) {
      const std::vector<int32_t> target(weights.empty() ? 2 : weights.size(), 7);
      EXPECT_TRUE(writer->Add({5}, target, weights).ok());
    }
    EXPECT_TRUE(writer->Finish().ok());
    return folder_.Path(name);
  }
  std::unique_ptr<IndexedDataset> Open(const std::string& prefix) {
    auto dataset = IndexedDataset::Open(prefix);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return *std::move(dataset);
  }
  std::string Refusal(const std::string& prefix) {
    return std::string(IndexedDataset::Open(prefix).status().message());
  }
  bool Exists(const std::string& name) const { return std::filesystem::exists(folder_.Path(name)); }

  TemporaryFolder folder_;
};

TEST_F(TokenWeightsTest, AreThoseThatWereWrittenAndOneForSamplesWithout) {
  const auto dataset = Open(Write("a", {{}, {1, 1}, {0, 0.5F, 1}, {}, {2.25F}}));
  EXPECT_TRUE(dataset->has_weights());
  EXPECT_THAT(*dataset->TargetWeights(0), ElementsAre(1, 1));
  EXPECT_THAT(*dataset->TargetWeights(1), ElementsAre(1, 1));
  EXPECT_THAT(*dataset->TargetWeights(2), ElementsAre(0, 0.5F, 1));
  EXPECT_THAT(*dataset->TargetWeights(3), ElementsAre(1, 1));
  EXPECT_THAT(*dataset->TargetWeights(4), ElementsAre(2.25F));
  // 32 bytes, four distinct weights, a byte for each of 15 tokens.
  EXPECT_EQ(folder_.Read("a.weights").size(), 32u + 16 + 15);
}

TEST_F(TokenWeightsTest, TakeNoFileWhereAllAreOne) {
  Write("a", {{0, 1}});
  EXPECT_TRUE(Exists("a.weights"));
  const std::string masked_bin = folder_.Read("a.bin");
  const auto dataset = Open(Write("a", {{1, 1}}));
  EXPECT_FALSE(Exists("a.weights"));
  EXPECT_FALSE(dataset->has_weights());
  EXPECT_THAT(*dataset->TargetWeights(0), ElementsAre(1, 1));
  EXPECT_EQ(folder_.Read("a.bin"), masked_bin) << "weights are no part of the tokens";
}

TEST_F(TokenWeightsTest, OfMoreThan256KindsAreFloats) {
  Weights samples;
  for (int i = 0; i < 300; ++i) samples.push_back({static_cast<float>(i) / 8, 1});
  const auto dataset = Open(Write("a", samples));
  for (size_t i = 0; i < samples.size(); ++i) EXPECT_EQ(*dataset->TargetWeights(i), samples[i]) << i;
  EXPECT_EQ(folder_.Read("a.weights").size(), 32u + 4 * 900);
  EXPECT_FALSE(Exists("a.weights.codes.partial"));
}

TEST_F(TokenWeightsTest, ThatAreNoneAreRefusedByPlace) {
  auto writer = *IndexedDatasetWriter::Create(folder_.Path("a"), {});
  const auto refusal = [&](const std::vector<float>& weights) {
    return std::string(writer->Add({}, {1, 2}, weights).message());
  };
  EXPECT_THAT(refusal({1}), HasSubstr("1 weights for 2 tokens"));
  EXPECT_THAT(refusal({1, -1}), HasSubstr("weight 1 of the target is -1"));
  EXPECT_THAT(refusal({NAN, 1}), HasSubstr("weight 0 of the target is nan"));
}

TEST_F(TokenWeightsTest, OfAnotherDatasetAreNeverRead) {
  const std::string prefix = Write("a", {{0, 1}, {1, 1, 0}});
  Write("b", {{0, 1, 1}, {1, 0}});
  // As many tokens, in other samples.
  std::filesystem::copy_file(folder_.Path("b.weights"), folder_.Path("a.weights"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(Refusal(prefix),
              AllOf(HasSubstr("a.weights"), HasSubstr("is not of"), HasSubstr("import the")));
}

TEST_F(TokenWeightsTest, ThatAreBrokenAreRefused) {
  const std::string prefix = Write("a", {{0, 1}, {1, 1, 0}});
  const std::string whole = folder_.Read("a.weights");
  folder_.Write("a.weights", whole.substr(0, 20));
  EXPECT_THAT(Refusal(prefix), HasSubstr("is cut short"));
  folder_.Write("a.weights", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(Refusal(prefix), HasSubstr("the dataset has 7 tokens"));
  folder_.Write("a.weights", "x" + whole.substr(1));
  EXPECT_THAT(Refusal(prefix), HasSubstr("PENSTWGT"));
  std::string unknown = whole;
  unknown.back() = 9;
  folder_.Write("a.weights", unknown);
  EXPECT_THAT(std::string(Open(prefix)->TargetWeights(1).status().message()), HasSubstr("does not have"));
}

TEST_F(TokenWeightsTest, OfJoinedDatasetsAreThoseOfEach) {
  const auto joined = OpenJoined({Write("a", {{}}), Write("b", {{0, 1}})});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE((*joined)->has_weights());
  EXPECT_THAT(*(*joined)->TargetWeights(0), Each(1));
  EXPECT_THAT(*(*joined)->TargetWeights(1), ElementsAre(0, 1));
}

}  // namespace
}  // namespace penstock
