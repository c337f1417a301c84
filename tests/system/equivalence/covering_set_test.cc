#include "tests/system/equivalence/covering_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace penstock::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::Lt;
using ::testing::SizeIs;

bool Everything(const Case&) { return true; }

// (factor, value, factor, value) of all cases.
std::set<std::tuple<size_t, size_t, size_t, size_t>> PairsOf(const std::vector<Case>& cases) {
  std::set<std::tuple<size_t, size_t, size_t, size_t>> pairs;
  for (const Case& choice : cases) {
    for (size_t a = 0; a < choice.size(); ++a) {
      for (size_t b = a + 1; b < choice.size(); ++b) pairs.insert({a, choice[a], b, choice[b]});
    }
  }
  return pairs;
}

TEST(ProductTest, HasEveryPossibleCaseOnce) {
  EXPECT_THAT(Product({2, 3}, [](const Case& c) { return c[0] + c[1] != 2; }),
              ElementsAre(Case{0, 0}, Case{0, 1}, Case{1, 0}, Case{1, 2}));
}

TEST(ProductTest, IsEmptyWhereNothingIsPossible) {
  EXPECT_THAT(Product({2, 3}, [](const Case&) { return false; }), ElementsAre());
}

TEST(ShuffledProductTest, HasTheSameCasesInAnOrderOfTheSeed) {
  std::vector<Case> one = ShuffledProduct({3, 4, 2}, Everything, 1);
  EXPECT_EQ(one, ShuffledProduct({3, 4, 2}, Everything, 1));
  EXPECT_NE(one, ShuffledProduct({3, 4, 2}, Everything, 2));
  std::ranges::sort(one);
  EXPECT_EQ(one, Product({3, 4, 2}, Everything));
}

// The third factor goes along, and never has its first value beside the second of the first factor.
TEST(ProductOfTest, HasEachPossibleCombinationOfItsFactorsOnceAndDrawsTheOthers) {
  const std::vector<size_t> values = {3, 4, 5};
  const auto possible = [](const Case& c) { return (c[0] != 2 || c[1] == 3) && (c[0] != 1 || c[2] > 0); };
  const std::vector<Case> chosen = ProductOf({0, 1}, values, possible, 1);
  EXPECT_TRUE(std::ranges::all_of(chosen, possible));
  std::vector<Case> combinations;
  std::set<size_t> drawn;
  for (const Case& c : chosen) {
    combinations.push_back({c[0], c[1]});
    drawn.insert(c[2]);
  }
  std::ranges::sort(combinations);
  EXPECT_EQ(combinations, Product({3, 4}, [](const Case& c) { return c[0] != 2 || c[1] == 3; }));
  EXPECT_THAT(drawn, SizeIs(Gt(1u)));
}

TEST(ProductOfTest, DependsOnTheSeedAlone) {
  const std::vector<size_t> values = {4, 3, 3};
  EXPECT_EQ(ProductOf({0, 1}, values, Everything, 5), ProductOf({0, 1}, values, Everything, 5));
  EXPECT_NE(ProductOf({0, 1}, values, Everything, 5), ProductOf({0, 1}, values, Everything, 6));
}

TEST(CoveringSetTest, HasEveryPairInFewCases) {
  const std::vector<size_t> values = {5, 6, 4, 3, 2, 2};
  const std::vector<Case> chosen = CoveringSet(values, Everything, 1);
  EXPECT_EQ(PairsOf(chosen), PairsOf(Product(values, Everything)));
  EXPECT_THAT(chosen, SizeIs(Lt(40u))) << "30 is the least, of 1440";
}

TEST(CoveringSetTest, HasEveryPairThatIsPossibleAndNoImpossibleCase) {
  const std::vector<size_t> values = {3, 3, 3, 2};
  // Value 0 of the second factor goes with value 1 of the first alone; three factors exclude each other.
  const auto possible = [](const Case& c) {
    return (c[1] != 0 || c[0] == 1) && !(c[0] == 2 && c[2] == 2 && c[3] == 1);
  };
  const std::vector<Case> chosen = CoveringSet(values, possible, 7);
  EXPECT_TRUE(std::ranges::all_of(chosen, possible));
  EXPECT_EQ(PairsOf(chosen), PairsOf(Product(values, possible)));
}

TEST(CoveringSetTest, HasEveryTripleToo) {
  const std::vector<size_t> values = {3, 2, 4, 2};
  const auto possible = [](const Case& c) { return c[0] != 0 || c[3] != 1; };
  const auto triples = [](const std::vector<Case>& cases) {
    std::set<std::vector<size_t>> found;
    for (const Case& c : cases) {
      for (size_t left_out = 0; left_out < c.size(); ++left_out) {
        std::vector<size_t> triple = {left_out};
        for (size_t factor = 0; factor < c.size(); ++factor) {
          if (factor != left_out) triple.push_back(c[factor]);
        }
        found.insert(triple);
      }
    }
    return found;
  };
  const std::vector<Case> all = Product(values, possible);
  const std::vector<Case> chosen = CoveringSet(values, possible, 3, /*ways=*/3);
  EXPECT_EQ(triples(chosen), triples(all));
  EXPECT_LT(chosen.size(), all.size());
}

TEST(CoveringSetTest, DependsOnTheSeedAlone) {
  EXPECT_EQ(CoveringSet({4, 3, 3}, Everything, 5), CoveringSet({4, 3, 3}, Everything, 5));
  EXPECT_NE(CoveringSet({4, 3, 3}, Everything, 5), CoveringSet({4, 3, 3}, Everything, 6));
}

}  // namespace
}  // namespace penstock::testing
