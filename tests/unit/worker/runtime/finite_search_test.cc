// The search for the pass that made the first number that is not finite, over the ranks of a stage group.
#include "worker/runtime/finite_search.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "worker/model/transformer_stage.h"

namespace penstock::worker {
namespace {

constexpr GroupPlace kGroup = {.contexts = 2, .tensors = 2};

at::Tensor Values(bool finite) {
  return at::full({3}, finite ? 1.0 : std::numeric_limits<double>::quiet_NaN(), at::kDouble);
}

// What each rank, context rank by context rank, finds in `look`.
template <typename Look>
std::vector<std::optional<Finding>> FoundBy(const Look& look) {
  const ModelConfig model = {.layers = 1,
                             .hidden = 4,
                             .heads = 1,
                             .attention_inner = 4,
                             .ffn = 4,
                             .vocab = 5,
                             .max_sequence_length = 4,
                             .dtype = DataType::kFloat64};
  std::vector<std::optional<Finding>> found(4);
  RunStageGroup(kGroup, [&](ThreadStageGroup& group) {
    const auto stage = *MakeTransformerStage(model, {0, 1, true, true}, /*seed=*/1, at::kCPU);
    const std::map<uint32_t, Stage*> stages = {{0, stage.get()}};
    FiniteSearch search(stages, group);
    const int rank = 2 * group.place().context + group.place().tensor;
    look(rank, search);
    found[static_cast<size_t>(rank)] = search.found();
  });
  return found;
}

TEST(FiniteSearchTest, AnInputOfAnyRankOfTheGroupIsNobodysFaultInThePass) {
  for (const bool backward : {false, true}) {
    const auto found = FoundBy([&](int rank, FiniteSearch& search) {
      // Rank 1 got it; inside the pass it went to all.
      const at::Tensor got = Values(rank != 1);
      const at::Tensor made = Values(false);
      const absl::Status looked = backward ? search.AfterBackward({0, 7}, got, made)
                                           : search.AfterForward({0, 7}, got, made, /*last=*/false);
      EXPECT_TRUE(looked.ok()) << looked;
    });
    for (const std::optional<Finding>& of_rank : found) EXPECT_FALSE(of_rank.has_value());
  }
}

TEST(FiniteSearchTest, AnOutputOfFiniteInputsIsFoundByTheRanksThatHaveIt) {
  const auto found = FoundBy([&](int rank, FiniteSearch& search) {
    EXPECT_TRUE(search.AfterForward({0, 7}, Values(true), Values(rank < 2), /*last=*/false).ok());
  });
  EXPECT_FALSE(found[0].has_value());
  EXPECT_FALSE(found[1].has_value());
  for (const size_t rank : {2, 3}) {
    ASSERT_TRUE(found[rank].has_value());
    EXPECT_EQ(found[rank]->what, NotFinite::kOutput);
    EXPECT_EQ(found[rank]->micro_batch, 7u);
  }
}

// A sum that overflows, say. The log names the parameter.
TEST(FiniteSearchTest, ASumInAShareIsLookedAtByWhoHasIt) {
  const FlatParameters share =
      MakeFlatParameters({{.name = "a", .shape = {3}}}, /*seed=*/1, at::kDouble, at::kCPU);
  const std::map<uint32_t, Stage*> none;
  FiniteSearch search(none);
  EXPECT_TRUE(search.AfterReshard(share).ok());
  EXPECT_FALSE(search.found().has_value());
  share.gradients[1] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(search.AfterReshard(share).ok());
  ASSERT_TRUE(search.found().has_value());
  EXPECT_EQ(search.found()->what, NotFinite::kShare);
  EXPECT_EQ(Describe(*search.found()), "rank 0: the sum of the gradients in its share of the parameters");
  // A pass explains it.
  EXPECT_LT((Finding{.what = NotFinite::kGradient, .rank = 3}), *search.found());
}

}  // namespace
}  // namespace penstock::worker
