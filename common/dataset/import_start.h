// Where an import begins: where an earlier one has left off, if that can be, or at the first file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/import.h"
#include "common/dataset/import_files.h"
#include "common/dataset/import_state.h"
#include "common/dataset/importer.h"
#include "common/dataset/indexed_dataset_writer.h"

namespace penstock {

struct ImportStart {
  ImportPoint point;
  std::unique_ptr<IndexedDatasetWriter> writer;
  // Null where nothing is kept for validation.
  std::unique_ptr<IndexedDatasetWriter> validation;
  // What holds of the earlier import's state, where this one goes on.
  std::optional<ImportState> state;
};

// Tells options.earlier what it finds. What an earlier import has left is removed where it is not gone on
// with. The import must hold the lock of `prefix`. Possible errors: those of IndexedDatasetWriter and of the
// file system.
absl::StatusOr<ImportStart> StartImport(const std::string& prefix, const ImportOptions& options,
                                        const ImportShape& shape, const std::vector<ImportFile>& files);

// Removes the state and what the writers have left aside. Possible errors: those of the file system.
absl::Status RemoveUnfinishedImport(const std::string& prefix, const std::string& validation_prefix);

}  // namespace penstock
