// The sections (text_sections.h) of a text file, one at a time. Used like a LineReader.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/data_file.h"
#include "common/dataset/text_sections.h"

namespace penstock {

class TextSectionReader {
 public:
  // Possible errors: those of DataFile::Open.
  static absl::StatusOr<TextSectionReader> Open(const std::string& path, const TextSectionOptions& options);

  // Not empty, and without a NUL byte near the beginning, as git judges. Possible errors: those of
  // DataFile::Read.
  absl::StatusOr<bool> IsText() const;

  // Puts the next section into `section`. False after the last one. Possible errors: those of DataFile::Read.
  absl::StatusOr<bool> Next(std::string* section);

  // Of the section that Next gave last, from 1.
  uint64_t number() const { return number_; }
  uint64_t bytes_read() const { return offset_; }

 private:
  TextSectionReader(DataFile file, const TextSectionOptions& options)
      : file_(std::move(file)), sections_(options) {}

  absl::Status ReadPiece();
  // Moves the lines that are complete from what is unread to the sections; with `all` also the rest.
  void AddLines(bool all);

  DataFile file_;
  TextSections sections_;
  std::string unread_;
  std::deque<std::string> complete_;
  uint64_t offset_ = 0;
  uint64_t number_ = 0;
  bool finished_ = false;
};

}  // namespace penstock
