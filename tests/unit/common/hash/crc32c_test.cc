#include "common/hash/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock {
namespace {

// RFC 3720, appendix B.4, and the check value of every catalogue.
TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(""), 0u);
}

}  // namespace
}  // namespace penstock
