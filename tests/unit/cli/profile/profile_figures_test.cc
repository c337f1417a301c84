#include "planner/cli/profile/profile_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cli/profile/some_profile.h"

namespace penstock::cli {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

const ProfileFigures::Row& RowOf(const ProfileFigures& figures, const std::string& what) {
  static const ProfileFigures::Row kNone;
  for (const ProfileFigures::Row& row : figures.rows)
    if (row.what == what) return row;
  ADD_FAILURE() << what;
  return kNone;
}

TEST(ProfileFiguresTest, AreThoseOfOneSampleOfEachLength) {
  const auto figures = FiguresOf(SomeProfile());
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_THAT(figures->lengths, ElementsAre(64, 256, 300));
  EXPECT_THAT(RowOf(*figures, "layer, forward, ms").values,
              ElementsAre(Optional(DoubleNear(1.064, 1e-9)), Optional(DoubleNear(1.256, 1e-9)),
                          Optional(DoubleNear(1.3, 1e-9))));
  EXPECT_THAT(RowOf(*figures, "layer, backward, ms").values,
              ElementsAre(Optional(DoubleNear(2.128, 1e-9)), Optional(DoubleNear(2.512, 1e-9)),
                          Optional(DoubleNear(2.6, 1e-9))));
  EXPECT_THAT(RowOf(*figures, "layer, kept, MB").values,
              ElementsAre(Optional(DoubleNear(0.64, 1e-9)), Optional(DoubleNear(2.56, 1e-9)),
                          Optional(DoubleNear(3.0, 1e-9))));
  // The first token has no loss.
  EXPECT_THAT(RowOf(*figures, "head, forward, ms").values,
              ElementsAre(Optional(DoubleNear(0.126, 1e-9)), Optional(DoubleNear(0.51, 1e-9)),
                          Optional(DoubleNear(0.598, 1e-9))));
}

TEST(ProfileFiguresTest, SayWhatIsWrongWithTheProfile) {
  v1::ProfileFile file = SomeProfile();
  file.mutable_profile()->mutable_layers(0)->set_backward_ratio_none(-1);
  EXPECT_THAT(std::string(FiguresOf(file).status().message()), HasSubstr("backward_ratio_none"));
}

}  // namespace
}  // namespace penstock::cli
