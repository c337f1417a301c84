#include "common/hash/hmac_sha256.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace penstock {
namespace {

// Test cases 1, 2 and 6 of RFC 4231; the last has a key that is longer than a block.
TEST(HmacSha256Test, AgreesWithTheStandard) {
  EXPECT_EQ(absl::BytesToHexString(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(absl::BytesToHexString(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(absl::BytesToHexString(HmacSha256(std::string(131, '\xaa'),
                                              "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacSha256Test, AnEmptyKeyIsAKeyAndNotThatOfTheCallBefore) {
  HmacSha256("a key", "text");
  EXPECT_EQ(absl::BytesToHexString(HmacSha256("", "")),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(HmacSha256Test, IsTheSameOnlyWhereEveryByteIs) {
  const std::string mac = HmacSha256("key", "text");
  EXPECT_TRUE(IsSameMac(mac, HmacSha256("key", "text")));
  EXPECT_FALSE(IsSameMac(mac, mac.substr(1)));
  EXPECT_FALSE(IsSameMac(mac, ""));
  for (size_t i = 0; i < mac.size(); ++i) {
    std::string other = mac;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(IsSameMac(mac, other)) << "byte " << i;
  }
}

}  // namespace
}  // namespace penstock
