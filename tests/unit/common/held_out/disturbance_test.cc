#include "common/held_out/disturbance.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Disturbance, IsSaidInACommentAndReadFromIt) {
  const std::string comment = WithDisturbance("medians", "the thread had 40 % of its core");
  EXPECT_EQ(comment, "medians; disturbed: the thread had 40 % of its core");
  EXPECT_EQ(DisturbanceOf(comment), "the thread had 40 % of its core");
}

TEST(Disturbance, OfAQuietMeasurementIsNotMentioned) {
  EXPECT_EQ(WithDisturbance("medians", ""), "medians");
  EXPECT_EQ(DisturbanceOf("medians"), "");
  EXPECT_EQ(DisturbanceOf(""), "");
}

}  // namespace
}  // namespace penstock
