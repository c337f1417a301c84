#include "common/secret/derived_key.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace penstock {
namespace {

// Computed with Python's hmac.
TEST(DerivedKeyTest, IsHkdfsExpansionOfOneBlock) {
  EXPECT_EQ(absl::BytesToHexString(DeriveKey(std::string(32, 's'), "peers of epoch 1")),
            "db567e03e0c7aa0445ff630b55c8a937d5ce6533a2ef1aadeea27552da4fdf8d");
}

TEST(DerivedKeyTest, IsAnotherForEachSecretAndPurpose) {
  const std::string key = DeriveKey("secret", "purpose");
  EXPECT_EQ(key.size(), 32);
  EXPECT_EQ(key, DeriveKey("secret", "purpose"));
  EXPECT_NE(key, DeriveKey("secret", "other"));
  EXPECT_NE(key, DeriveKey("other", "purpose"));
}

}  // namespace
}  // namespace penstock
