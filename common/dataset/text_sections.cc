#include "common/dataset/text_sections.h"

#include <utility>

namespace penstock {
namespace {

bool IsBlank(std::string_view line) { return line.find_first_not_of(" \t\r\n\f") == std::string_view::npos; }

// "# Title" to "###### Title".
bool IsHeading(std::string_view line) {
  const size_t marks = line.find_first_not_of('#');
  return marks >= 1 && marks <= 6 && marks != std::string_view::npos && line[marks] == ' ';
}

}  // namespace

bool TextSections::IsBoundary(std::string_view line) const {
  if (current_.size() < options_.min_bytes || IsBlank(line)) return false;
  const bool indented = line[0] == ' ' || line[0] == '\t' || line[0] == '}';
  return (after_blank_line_ && !indented) || IsHeading(line);
}

void TextSections::AddLine(std::string_view line) {
  if (IsBoundary(line)) EndSection();
  after_blank_line_ = IsBlank(line);
  if (!current_.empty() && current_.size() + line.size() > options_.max_bytes) EndSection();
  while (line.size() > options_.max_bytes) {
    current_ = line.substr(0, options_.max_bytes);
    line.remove_prefix(options_.max_bytes);
    EndSection();
  }
  current_ += line;
}

void TextSections::EndSection() {
  if (!held_.empty()) complete_.push_back(std::move(held_));
  held_ = std::exchange(current_, {});
}

void TextSections::Finish() {
  if (current_.size() < options_.min_bytes && held_.size() + current_.size() <= options_.max_bytes) {
    held_ += current_;
    current_.clear();
  } else {
    EndSection();
  }
  if (!held_.empty()) complete_.push_back(std::exchange(held_, {}));
  after_blank_line_ = false;
}

std::vector<std::string> TextSections::Take() { return std::exchange(complete_, {}); }

}  // namespace penstock
