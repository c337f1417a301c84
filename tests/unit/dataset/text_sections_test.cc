#include "common/dataset/text_sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace penstock {
namespace {

using testing::ElementsAre;

std::vector<std::string> Cut(const std::string& text, const TextSectionOptions& options) {
  TextSections sections(options);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    sections.AddLine(std::string_view(text).substr(begin, end - begin));
    begin = end;
  }
  sections.Finish();
  return sections.Take();
}

TEST(TextSections, CutsAtParagraphsAndHeadings) {
  EXPECT_THAT(Cut("one one\n\ntwo two\n  indented\n# three\nfour\n", {.min_bytes = 5, .max_bytes = 100}),
              ElementsAre("one one\n\n", "two two\n  indented\n", "# three\nfour\n"));
}

TEST(TextSections, KeepsIndentedParagraphsTogether) {
  EXPECT_THAT(Cut("f() {\n  a;\n\n  b;\n}\n\ng() {}\n", {.min_bytes = 5, .max_bytes = 100}),
              ElementsAre("f() {\n  a;\n\n  b;\n}\n\n", "g() {}\n"));
}

TEST(TextSections, KeepsShortTextsWhole) {
  EXPECT_THAT(Cut("a\n\nb\n\nc", {.min_bytes = 64, .max_bytes = 100}), ElementsAre("a\n\nb\n\nc"));
}

TEST(TextSections, JoinsAShortRestWithTheSectionBeforeIt) {
  EXPECT_THAT(Cut("one one\n\ntwo\n", {.min_bytes = 6, .max_bytes = 100}), ElementsAre("one one\n\ntwo\n"));
}

TEST(TextSections, CutsLongLines) {
  EXPECT_THAT(Cut("abcdefghij", {.min_bytes = 1, .max_bytes = 4}), ElementsAre("abcd", "efgh", "ij"));
}

TEST(TextSections, TogetherAreTheTextAndNoneIsTooLong) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "ab #\n\n\n "[random() % 8];
    const std::vector<std::string> sections = Cut(text, {.min_bytes = 7, .max_bytes = 29});
    EXPECT_EQ(std::accumulate(sections.begin(), sections.end(), std::string()), text);
    for (const std::string& section : sections) {
      EXPECT_LE(section.size(), 29u);
      EXPECT_GE(section.size(), 1u);
    }
  }
}

}  // namespace
}  // namespace penstock
