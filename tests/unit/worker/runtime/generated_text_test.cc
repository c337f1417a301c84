#include "worker/runtime/generated_text.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/support/fake_tokenizer.h"

namespace penstock::worker {
namespace {

// What is printed for each of the tokens.
std::vector<std::string> Printed(GeneratedText& text, const std::vector<int32_t>& tokens) {
  std::vector<std::string> printed;
  for (const int32_t token : tokens) printed.push_back(text.Append(token).value_or("failed"));
  return printed;
}

// Of tokens that are bytes, so that a character may be several of them.
std::vector<int32_t> Bytes(const std::string& text) {
  std::vector<int32_t> tokens;
  for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

using Strings = std::vector<std::string>;

TEST(GeneratedText, IsPrintedWhenACharacterIsWhole) {
  const auto text = TextOfTokenizer(std::make_unique<FakeTokenizer>());
  EXPECT_EQ(Printed(*text, Bytes("a\xc3\xa4\xf0\x9f\x98\x80.")),
            (Strings{"a", "", "\xc3\xa4", "", "", "", "\xf0\x9f\x98\x80", "."}));
}

TEST(GeneratedText, CommandsNoTerminal) {
  const auto text = TextOfTokenizer(std::make_unique<FakeTokenizer>());
  EXPECT_EQ(Printed(*text, Bytes("\n\x1b[\x7f")), (Strings{"\n", "?", "[", "?"}));
}

TEST(GeneratedText, OfAModelOfBytesIsItsBytes) {
  GenerateOptions options;
  options.as_bytes = true;
  const auto text = MakeGeneratedText(options);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(Printed(**text, Bytes("To\x1b")), (Strings{"T", "o", "?"}));
}

TEST(GeneratedText, IsNumbersWhereNothingElseIsKnown) {
  const auto text = MakeGeneratedText(GenerateOptions());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(Printed(**text, {15043, 2}), (Strings{"15043", " 2"}));
}

}  // namespace
}  // namespace penstock::worker
