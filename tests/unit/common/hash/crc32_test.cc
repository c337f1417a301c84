#include "common/hash/crc32.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Crc32, IsTheOneOfGzip) {
  EXPECT_EQ(Crc32("123456789"), 0xcbf43926u);
  EXPECT_EQ(Crc32(""), 0u);
}

TEST(Crc32, GoesOnFromAnEarlierPart) { EXPECT_EQ(Crc32("6789", Crc32("12345")), Crc32("123456789")); }

// Also of one that has no bytes anywhere.
TEST(Crc32, AnEmptyPartChangesNothing) {
  EXPECT_EQ(Crc32("", Crc32("12345")), Crc32("12345"));
  EXPECT_EQ(Crc32(absl::string_view(), Crc32("12345")), Crc32("12345"));
}

}  // namespace
}  // namespace penstock
