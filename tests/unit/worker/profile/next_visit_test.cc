#include "worker/profile/next_visit.h"

#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

// A layer of rectangles of one row that take what a form says.
std::vector<VisitedShape> Shapes(size_t visits) {
  std::vector<VisitedShape> shapes;
  for (const double length : {16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0}) {
    const TokenFigures tokens = {.target = length, .target_square = length * length};
    shapes.push_back({.point = {tokens, 1e5 + 900 * length + 0.5 * length * length}, .visits = visits});
  }
  return shapes;
}

TEST(NextVisit, IsFirstOfShapesThatHaveHadFewest) {
  std::vector<VisitedShape> shapes = Shapes(kFewestVisits);
  shapes[3].visits = kFewestVisits - 1;
  shapes[5].visits = kFewestVisits - 2;
  EXPECT_EQ(NextVisit(shapes, /*fitted=*/true), 5);
  shapes[5].open = false;
  EXPECT_EQ(NextVisit(shapes, /*fitted=*/true), 3);
}

TEST(NextVisit, IsThenOfTheOneThatIsFarthestOff) {
  std::vector<VisitedShape> shapes = Shapes(kFewestVisits);
  shapes[3].point.ns *= 1.5;
  EXPECT_EQ(NextVisit(shapes, /*fitted=*/true), 3);
}

TEST(NextVisit, IsOfOneThatAloneSaysWhatATermTakesWhereAllFit) {
  const std::vector<VisitedShape> shapes = Shapes(kFewestVisits);
  const std::vector<double> doubts = Doubts(shapes);
  // Nothing else tells squares from tokens, or what a pass takes for being there.
  EXPECT_GT(doubts.back(), 2 * doubts[3]);
  EXPECT_GT(doubts.front(), doubts[3]);
  const std::optional<size_t> next = NextVisit(shapes, /*fitted=*/true);
  ASSERT_TRUE(next.has_value());
  EXPECT_TRUE(*next == 0 || *next == shapes.size() - 1) << *next;
}

TEST(NextVisit, IsOfALargeOneThatAloneSaysHowLongATokenTakesAmongSoMany) {
  std::vector<VisitedShape> shapes;
  // Squares are told by long rows among few tokens.
  for (const double rows : {1.0, 2.0, 4.0, 8.0}) {
    for (const double length : {16.0, 64.0, 128.0, 256.0, 512.0}) {
      const TokenFigures tokens = {.target = rows * length, .target_square = rows * length * length};
      shapes.push_back(
          {.point = {tokens, 1e5 + 900 * tokens.target + 0.5 * tokens.target_square}, .visits = 3});
    }
  }
  const double before = Doubts(shapes)[10];
  const TokenFigures large = {.target = 20000, .target_square = 20000.0 * 16};
  shapes.push_back({.point = {large, 1e5 + 900 * large.target + 0.5 * large.target_square}, .visits = 3});
  const std::vector<double> doubts = Doubts(shapes);
  EXPECT_GT(doubts.back(), 2 * doubts[10]) << before;
}

TEST(NextVisit, GoesOnToOthersWhenAShapeHasBeenVisitedOften) {
  std::vector<VisitedShape> shapes = Shapes(kFewestVisits);
  shapes[3].point.ns *= 1.5;
  shapes[3].visits = 100;
  EXPECT_NE(NextVisit(shapes, /*fitted=*/true), 3);
}

TEST(NextVisit, OfShapesThatNothingIsFittedToAllHaveAsMany) {
  std::vector<VisitedShape> shapes = Shapes(8);
  shapes[3].point.ns *= 1.5;
  EXPECT_EQ(NextVisit(shapes, /*fitted=*/false), 0);
  shapes[0].visits = 9;
  EXPECT_EQ(NextVisit(shapes, /*fitted=*/false), 1);
}

TEST(NextVisit, IsNoneWhereThereIsNoTime) {
  std::vector<VisitedShape> shapes = Shapes(1);
  for (VisitedShape& shape : shapes) shape.open = false;
  EXPECT_FALSE(NextVisit(shapes, /*fitted=*/true).has_value());
  EXPECT_FALSE(NextVisit({}, /*fitted=*/false).has_value());
}

}  // namespace
}  // namespace penstock::worker
