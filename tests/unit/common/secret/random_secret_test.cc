#include "common/secret/random_secret.h"

#include <gtest/gtest.h>

#include <set>

namespace penstock {
namespace {

TEST(RandomSecretTest, IsAnotherEachTime) {
  constexpr size_t kSecrets = 1000;
  std::set<std::string> secrets;
  for (size_t i = 0; i < kSecrets; ++i) {
    const absl::StatusOr<std::string> secret = RandomSecret();
    ASSERT_TRUE(secret.ok()) << secret.status();
    EXPECT_EQ(secret->size(), kSecretBytes);
    secrets.insert(*secret);
  }
  EXPECT_EQ(secrets.size(), kSecrets);
}

}  // namespace
}  // namespace penstock
