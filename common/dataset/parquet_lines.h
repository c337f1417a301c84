// Rows of a Parquet file as lines of JSON, which penstock-parquet (planner/parquet) writes: Arrow's libraries
// are loaded there alone. Used like a LineReader.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/file_descriptor.h"

namespace penstock {

class ParquetLines {
 public:
  // `program`: the path of penstock-parquet; empty: it is not there. The calling thread must live as long as
  // this. Possible errors: UNIMPLEMENTED (no program: says what to install), NOT_FOUND and UNAVAILABLE (it
  // cannot be started).
  static absl::StatusOr<ParquetLines> Open(const std::string& program, const std::string& path);

  ParquetLines(ParquetLines&& other) noexcept;
  ParquetLines& operator=(ParquetLines&&) = delete;
  // Ends the program.
  ~ParquetLines();

  // Puts the next row into `line`. False after the last one. Possible errors: INVALID_ARGUMENT (the file
  // cannot be read: names it and what is wrong), UNAVAILABLE.
  absl::StatusOr<bool> Next(std::string* line);

  // Of the row that Next gave last, from 1.
  uint64_t line_number() const { return line_number_; }

 private:
  ParquetLines(std::string path, pid_t pid, FileDescriptor output, FileDescriptor said);

  // Loads more into the buffer; false at the end of the rows. Possible errors: those of Next.
  absl::StatusOr<bool> Fill();
  // What the program's end means.
  absl::Status End();

  std::string path_;
  pid_t pid_;
  FileDescriptor output_;
  // What it says on stderr.
  FileDescriptor said_;
  std::string buffer_;
  size_t position_ = 0;
  uint64_t line_number_ = 0;
};

}  // namespace penstock
