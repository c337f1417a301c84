// Lines of a text file, plain or compressed with gzip, one at a time.
//
//   PENSTOCK_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(path));
//   std::string line;
//   for (;;) {
//     PENSTOCK_ASSIGN_OR_RETURN(bool more, reader.Next(&line));
//     if (!more) break;
//     ... reader.line_number() ...
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

struct gzFile_s;

namespace penstock {

class LineReader {
 public:
  // Possible errors: NOT_FOUND, PERMISSION_DENIED; both name the path.
  static absl::StatusOr<LineReader> Open(const std::string& path);

  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  // Puts the next line, without its end, into `line`. False after the last line.
  // Possible errors: INVALID_ARGUMENT (damaged or truncated compression, a line above 256 MiB); names the
  // path.
  absl::StatusOr<bool> Next(std::string* line);

  // Of the line that Next gave last, from 1.
  uint64_t line_number() const { return line_number_; }
  // Of the file, as it is stored, so far.
  uint64_t bytes_read() const;

 private:
  LineReader(std::string path, gzFile_s* file) : path_(std::move(path)), file_(file) {}

  // Loads more into the buffer; false at the end of the file.
  absl::StatusOr<bool> Fill();

  std::string path_;
  gzFile_s* file_;
  std::string buffer_;
  size_t position_ = 0;
  uint64_t line_number_ = 0;
};

}  // namespace penstock
