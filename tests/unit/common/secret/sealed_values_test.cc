#include "common/secret/sealed_values.h"

#include <gmock/gmock.h>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kSecret(32, 's');

SealedValues Epoch(int epoch) { return {kSecret, absl::StrCat("epoch ", epoch)}; }

auto IsForged() { return Fails(absl::StatusCode::kUnauthenticated, "was not made with the secret"); }

TEST(SealedValuesTest, OpensWhatWasSealed) {
  for (const std::string& value : {std::string(), std::string("a"), std::string(100'000, '\0')}) {
    const auto sealed = Epoch(1).Seal("rank 0", value);
    ASSERT_TRUE(sealed.ok()) << sealed.status();
    const auto opened = Epoch(1).Open("rank 0", *sealed);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(*opened, value);
  }
}

TEST(SealedValuesTest, ShowsNeitherNameNorValue) {
  const auto sealed = Epoch(1).Seal("rank 0", "10.0.0.1:4711");
  EXPECT_THAT(*sealed, Not(HasSubstr("10.0.0.1")));
  EXPECT_THAT(Epoch(1).HiddenName("rank 0"), Not(HasSubstr("rank")));
  // The same value does not look the same twice.
  EXPECT_NE(*sealed, *Epoch(1).Seal("rank 0", "10.0.0.1:4711"));
}

TEST(SealedValuesTest, RefusesAValueOfWhichOneBitWasChanged) {
  const std::string sealed = *Epoch(1).Seal("rank 0", "10.0.0.1:4711");
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    std::string forged = sealed;
    forged[bit / 8] = static_cast<char>(forged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THAT(Epoch(1).Open("rank 0", forged), IsForged()) << "bit " << bit;
  }
}

TEST(SealedValuesTest, RefusesWhatWasNeverSealedOrCutOff) {
  const std::string sealed = *Epoch(1).Seal("rank 0", "10.0.0.1:4711");
  for (size_t size = 0; size < sealed.size(); ++size) {
    EXPECT_THAT(Epoch(1).Open("rank 0", sealed.substr(0, size)), IsForged()) << size << " bytes";
  }
  EXPECT_THAT(Epoch(1).Open("rank 0", sealed + "x"), IsForged());
  EXPECT_THAT(Epoch(1).Open("rank 0", "10.0.0.1:4711"), IsForged());
  EXPECT_THAT(Epoch(1).Open("rank 0", std::string(1000, 'x')), IsForged());
}

TEST(SealedValuesTest, RefusesTheValueOfAnotherName) {
  const std::string sealed = *Epoch(1).Seal("rank 0", "10.0.0.1:4711");
  EXPECT_THAT(Epoch(1).Open("rank 1", sealed), IsForged());
}

TEST(SealedValuesTest, RefusesWhatWasSealedForAnotherPurposeOrWithAnotherSecret) {
  const std::string sealed = *Epoch(1).Seal("rank 0", "10.0.0.1:4711");
  EXPECT_THAT(Epoch(2).Open("rank 0", sealed), IsForged());
  const SealedValues stranger(std::string(32, 't'), "epoch 1");
  EXPECT_THAT(stranger.Open("rank 0", sealed), IsForged());
  const SealedValues without("", "epoch 1");
  EXPECT_THAT(without.Open("rank 0", sealed), IsForged());
}

TEST(SealedValuesTest, NamesAreTheirOwnForEachSecretAndPurpose) {
  const std::string name = Epoch(1).HiddenName("rank 0");
  EXPECT_EQ(name, Epoch(1).HiddenName("rank 0"));
  EXPECT_NE(name, Epoch(1).HiddenName("rank 1"));
  EXPECT_NE(name, Epoch(2).HiddenName("rank 0"));
  EXPECT_NE(name, SealedValues(std::string(32, 't'), "epoch 1").HiddenName("rank 0"));
}

}  // namespace
}  // namespace penstock
