// Text of others on a terminal.
#include "planner/cli/printable_text.h"

#include <gtest/gtest.h>

namespace penstock::cli {
namespace {

TEST(PrintableText, KeepsWhatPeopleRead) {
  for (const char* text : {"", "rank 3: 7 bytes\n", "Größe 30 µs – 素材 🙂"})
    EXPECT_EQ(PrintableText(text), text);
}

TEST(PrintableText, WritesControlCharactersAsNumbers) {
  EXPECT_EQ(PrintableText("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(PrintableText("a\rb\tc\x7f"), "a\\x0db\\x09c\\x7f");
  EXPECT_EQ(PrintableText("\xc2\x9b"), "\\xc2\\x9b");  // CSI
}

TEST(PrintableText, WritesBytesThatAreNotUtf8AsNumbers) {
  EXPECT_EQ(PrintableText("a\xff"), "a\\xff");
  EXPECT_EQ(PrintableText("\xc3"), "\\xc3");
  EXPECT_EQ(PrintableText("\xc0\xaf"), "\\xc0\\xaf");           // longer than need be
  EXPECT_EQ(PrintableText("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a pair
  EXPECT_EQ(PrintableText("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
}

}  // namespace
}  // namespace penstock::cli
