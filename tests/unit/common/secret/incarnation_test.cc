#include "common/secret/incarnation.h"

#include <gtest/gtest.h>

#include <set>

namespace penstock {
namespace {

TEST(IncarnationTest, EachJoinAndEachKeyHasItsOwn) {
  std::set<uint64_t> all;
  for (const char* key : {"one", "another"}) {
    for (uint64_t join = 0; join < 100; ++join) all.insert(IncarnationOf(key, join));
  }
  EXPECT_EQ(all.size(), 200);
  EXPECT_FALSE(all.contains(0));
}

TEST(IncarnationTest, WhoHasTheKeyKnowsTheIncarnationByItsDigestAndOthersDoNot) {
  const uint64_t incarnation = IncarnationOf("key", 3);
  EXPECT_EQ(IncarnationOf("key", 3), incarnation);
  const uint64_t digest = IncarnationDigest(incarnation);
  EXPECT_NE(digest, incarnation);
  EXPECT_EQ(IncarnationDigest(IncarnationOf("key", 3)), digest);
  EXPECT_NE(IncarnationDigest(IncarnationOf("other", 3)), digest);
}

TEST(IncarnationTest, DigestsStayWhatTheyAre) {
  // What logs and scripts of several versions show of one worker.
  EXPECT_EQ(IncarnationDigest(1), 16735829410219923952u);
}

}  // namespace
}  // namespace penstock
