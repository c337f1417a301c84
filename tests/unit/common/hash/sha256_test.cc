#include "common/hash/sha256.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace penstock {
namespace {

// The examples of FIPS 180-2, appendix B.
TEST(Sha256Test, AgreesWithTheStandard) {
  EXPECT_EQ(absl::BytesToHexString(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(absl::BytesToHexString(Sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256Test, TheSumOfPartsIsThatOfTheWhole) {
  Sha256Sum sum;
  for (const char* part : {"a", "", "bc"}) sum.Add(part);
  EXPECT_EQ(sum.Digest(), Sha256("abc"));
  EXPECT_EQ(Sha256Sum().Digest(), Sha256(""));
}

TEST(Sha256Test, HashesNothingAndZeros) {
  EXPECT_EQ(absl::BytesToHexString(Sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_NE(Sha256(absl::string_view("\0", 1)), Sha256(""));
}

}  // namespace
}  // namespace penstock
