// Cuts a text into sections: the samples of a text dataset.
//
// A section ends where a paragraph at the left margin begins (a blank line before a line that is not
// indented: the next function, the next paragraph) or before a Markdown heading, once it has `min_bytes`; at
// the latest at `max_bytes`. Short texts stay whole, and a short rest joins the section before it. The
// sections together are the text, byte for byte.
//
//   TextSections sections({});
//   sections.AddLine(line) ...; sections.Finish();
//   for (const std::string& section : sections.Take()) ...
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct TextSectionOptions {
  size_t min_bytes = 64;
  size_t max_bytes = 2048;
};

class TextSections {
 public:
  explicit TextSections(const TextSectionOptions& options) : options_(options) {}

  // `line` with its end, if it has one.
  void AddLine(std::string_view line);
  void Finish();

  // The sections that are complete so far; each is given once.
  std::vector<std::string> Take();

 private:
  bool IsBoundary(std::string_view line) const;
  void EndSection();

  const TextSectionOptions options_;
  bool after_blank_line_ = false;
  std::string current_;
  // The last complete section, held back because a short rest may join it.
  std::string held_;
  std::vector<std::string> complete_;
};

}  // namespace penstock
