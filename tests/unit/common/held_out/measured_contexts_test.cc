#include "common/held_out/measured_contexts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/held_out/disturbance.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MeasuredContexts, AreReadFromTheCommentThatNamesThem) {
  const std::string comment = WithMeasuredContexts("measured by hand", {2, 4});
  EXPECT_THAT(MeasuredContextsOf(comment), ElementsAre(2, 4));
  const std::string disturbed = WithDisturbance(comment, "a build");
  EXPECT_THAT(MeasuredContextsOf(disturbed), ElementsAre(2, 4));
  EXPECT_EQ(DisturbanceOf(disturbed), "a build");
}

TEST(MeasuredContexts, AreNoneWhereACommentNamesNone) {
  EXPECT_EQ(WithMeasuredContexts("measured by hand", {}), "measured by hand");
  EXPECT_THAT(MeasuredContextsOf("measured by hand"), IsEmpty());
  EXPECT_THAT(MeasuredContextsOf("; layers also as shares of context ranks: many"), IsEmpty());
}

}  // namespace
}  // namespace penstock
