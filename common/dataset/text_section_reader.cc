#include "common/dataset/text_section_reader.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr size_t kBytesToJudge = 8192;
// Text is read in pieces of so many bytes, and lines of so many are held.
constexpr size_t kPiece = 1 << 20;
constexpr size_t kLongestHeldLine = 1 << 24;

}  // namespace

absl::StatusOr<TextSectionReader> TextSectionReader::Open(const std::string& path,
                                                          const TextSectionOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(DataFile file, DataFile::Open(path));
  return TextSectionReader(std::move(file), options);
}

absl::StatusOr<bool> TextSectionReader::IsText() const {
  std::string beginning(std::min<uint64_t>(kBytesToJudge, file_.size()), '\0');
  PENSTOCK_RETURN_IF_ERROR(file_.Read(0, beginning.size(), beginning.data()));
  return !beginning.empty() && beginning.find('\0') == std::string::npos;
}

absl::StatusOr<bool> TextSectionReader::Next(std::string* section) {
  section->clear();
  while (complete_.empty() && !finished_) PENSTOCK_RETURN_IF_ERROR(ReadPiece());
  if (complete_.empty()) return false;
  *section = std::move(complete_.front());
  complete_.pop_front();
  ++number_;
  return true;
}

absl::Status TextSectionReader::ReadPiece() {
  const size_t bytes = std::min<uint64_t>(kPiece, file_.size() - offset_);
  const size_t kept = unread_.size();
  unread_.resize(kept + bytes);
  PENSTOCK_RETURN_IF_ERROR(file_.Read(offset_, bytes, unread_.data() + kept));
  offset_ += bytes;
  finished_ = offset_ == file_.size();
  AddLines(/*all=*/finished_);
  if (finished_) sections_.Finish();
  std::ranges::move(sections_.Take(), std::back_inserter(complete_));
  return absl::OkStatus();
}

// A line without an end in sight goes in parts: sections are shorter.
void TextSectionReader::AddLines(bool all) {
  std::string_view rest = unread_;
  for (;;) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    sections_.AddLine(rest.substr(0, end + 1));
    rest.remove_prefix(end + 1);
  }
  if (!rest.empty() && (all || rest.size() > kLongestHeldLine)) {
    sections_.AddLine(rest);
    rest = {};
  }
  unread_.erase(0, unread_.size() - rest.size());
}

}  // namespace penstock
