// PREFIX.import.json: how far an import is, so that another process can go on.
//
// A point is noted once everything before it is on disk, and the file is replaced whole: whenever a process
// or a machine ends, what is noted holds. The files of the writers are checked against their checksums when
// they are taken up again, so that nothing else is taken for them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/dataset_writer_mark.h"
#include "common/dataset/import.h"
#include "common/dataset/import_files.h"
#include "common/dataset/importer.h"

namespace penstock {

// All that shapes a dataset, but for the files: by the flag of `penstock dataset import` that says it.
using ImportShape = std::map<std::string, std::string>;
// What else is in a shape: the program, whose versions may read files otherwise.
inline constexpr const char* kShapeProgram = "penstock";
// Empty without validation.
inline constexpr const char* kShapeValidation = "--validation-out";

// Possible errors: those of TokenizerFingerprint.
absl::StatusOr<ImportShape> ShapeOf(const ImportOptions& options);

// A point, and the writers there.
struct ImportMark {
  ImportPoint point = {};
  DatasetWriterMark writer = {};
  std::optional<DatasetWriterMark> validation = {};

  bool operator==(const ImportMark&) const = default;
};

struct ImportState {
  ImportShape shape = {};
  // Those up to the one that is read, with it.
  std::vector<ImportFile> files = {};
  // The last one, and the one at the beginning of the file that it is in: where that file has changed
  // meanwhile (a line is mended), it alone is read again.
  ImportMark latest = {};
  ImportMark file_begin = {};

  bool operator==(const ImportState&) const = default;
};

std::string ImportStateFile(const std::string& prefix);

// Nothing where there is none. Possible errors: INVALID_ARGUMENT (it is not one that this version has
// written), and those of ReadFile.
absl::StatusOr<std::optional<ImportState>> ReadImportState(const std::string& prefix);

// Possible errors: those of WriteFileAtomically.
absl::Status WriteImportState(const std::string& prefix, const ImportState& state);

// It is gone for good when this returns, whatever comes then. Fine where there is none. Possible errors:
// those of the file system.
absl::Status RemoveImportState(const std::string& prefix);

}  // namespace penstock
