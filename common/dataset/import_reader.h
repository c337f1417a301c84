// What an import reads of a file, one after the other: lines of JSON, rows of Parquet or sections of text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/dataset/import.h"
#include "common/dataset/import_files.h"

namespace penstock {

class ImportReader {
 public:
  virtual ~ImportReader() = default;

  // Puts the next item into `item`. False after the last one. Possible errors: those of LineReader,
  // ParquetLines and TextSectionReader.
  virtual absl::StatusOr<bool> Next(std::string* item) = 0;
  // Of the item that Next gave last, from 1.
  virtual uint64_t number() const = 0;
  // Of the file, as it is stored, so far; 0 for Parquet, of which nobody knows.
  virtual uint64_t bytes_read() const = 0;
};

// Null for what should be text and is not, or is empty. Possible errors: those of opening.
absl::StatusOr<std::unique_ptr<ImportReader>> OpenImportReader(const ImportFile& file,
                                                               const ImportOptions& options);

// What the items of a file are called: "line", "row", "section".
absl::string_view ItemWord(ImportFormat kind);

}  // namespace penstock
