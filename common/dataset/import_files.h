// Which files an import reads, in which order, and as what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

enum class ImportFormat {
  // By name: .jsonl, .json, .jsonl.gz and .json.gz are JSON lines (json_sample.h, with a tokenizer
  // text_sample.h), .parquet is Parquet, everything else is text.
  kAuto,
  kJsonLines,
  // Each row as a line of JSON, columns as its fields. A folder means all .parquet files below it, in order
  // of their paths, without hidden ones.
  kParquet,
  // Without a tokenizer bytes as tokens 0 to 255; a folder means all text files below it, in order of their
  // paths, without hidden ones.
  kText,
};

struct ImportFile {
  std::string path = {};
  // Never kAuto.
  ImportFormat kind = ImportFormat::kText;
  // Of what is no regular file (a FIFO, a device) size and time say nothing, and are 0.
  bool regular = true;
  uint64_t bytes = 0;
  // Since 1970, of the last change.
  int64_t modified_ns = 0;

  bool operator==(const ImportFile&) const = default;
};

// `paths` are files and folders. Possible errors: NOT_FOUND (nothing is at a path), and those of listing
// folders; all name the path.
absl::StatusOr<std::vector<ImportFile>> ListImportFiles(const std::vector<std::string>& paths,
                                                        ImportFormat format);

// Takes out what an import that was interrupted has left of PREFIX: it may stand in a folder that is
// imported.
void LeaveOutUnfinished(const std::string& prefix, std::vector<ImportFile>& files);

// Whether a file is the same as before, as far as its name, size and time tell.
bool IsUnchanged(const ImportFile& before, const ImportFile& now);

}  // namespace penstock
