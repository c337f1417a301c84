#include "common/dataset/import.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/dataset/dataset_tokenizer.h"
#include "common/dataset/import_lock.h"
#include "common/dataset/import_marks.h"
#include "common/dataset/import_start.h"
#include "common/dataset/import_state.h"
#include "common/dataset/importer.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

absl::Status CheckSummary(const ImportSummary& summary, const ImportOptions& options) {
  if (summary.samples + summary.validation_samples == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("no sample in the files given (", summary.skipped_files, " are empty or not text)"));
  }
  if (options.validation_share == 0 || (summary.samples > 0 && summary.validation_samples > 0))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("of ", summary.samples + summary.validation_samples,
                                                 " samples ", summary.samples > 0 ? "none" : "all",
                                                 " would be for validation: give another share"));
}

// Of one dataset and, with a share, of that for validation.
struct ImportLocks {
  std::optional<ImportLock> dataset;
  std::optional<ImportLock> validation;
};

absl::StatusOr<ImportLocks> TakeLocks(const std::string& prefix, const std::string& validation_prefix) {
  ImportLocks locks;
  PENSTOCK_ASSIGN_OR_RETURN(ImportLock lock, ImportLock::Take(prefix));
  locks.dataset.emplace(std::move(lock));
  if (validation_prefix.empty()) return locks;
  PENSTOCK_ASSIGN_OR_RETURN(ImportLock validation, ImportLock::Take(validation_prefix));
  locks.validation.emplace(std::move(validation));
  return locks;
}

uint64_t TotalBytes(const std::vector<ImportFile>& files) {
  uint64_t bytes = 0;
  for (const ImportFile& file : files) bytes += file.bytes;
  return bytes;
}

// Notes how far the import is, and tells it.
Importer::Reached ReachedBy(const ImportOptions& options, const std::vector<ImportFile>& files,
                            ImportMarks& marks) {
  return [&options, &marks, files = files.size(), all = TotalBytes(files)](const ImportPoint& point,
                                                                           uint64_t bytes) {
    PENSTOCK_RETURN_IF_ERROR(marks.Reached(point));
    if (options.progress) {
      options.progress({.files_done = point.file,
                        .files = files,
                        .bytes_done = bytes,
                        .bytes = all,
                        .samples = point.summary.samples + point.summary.validation_samples});
    }
    return absl::OkStatus();
  };
}

// What has been noted stays, with the files that it is about, for an import that goes on.
void LeaveForLater(const ImportMarks& marks, ImportStart& start) {
  if (!marks.any()) return;
  start.writer->Keep();
  if (start.validation != nullptr) start.validation->Keep();
}

absl::Status SayWhatIsKept(const absl::Status& error, const ImportMarks& marks) {
  if (!marks.any()) return error;
  return absl::Status(
      error.code(), absl::StrCat(error.message(),
                                 " (what was read before is kept: the same command goes on there, and reads "
                                 "files that have changed from their beginning)"));
}

absl::Status FinishDatasets(const std::string& prefix, const ImportOptions& options, ImportStart& start) {
  TextTokenizer* const tokenizer = options.tokenizers.empty() ? nullptr : options.tokenizers.front();
  if (start.validation != nullptr) {
    PENSTOCK_RETURN_IF_ERROR(start.validation->Finish());
    PENSTOCK_RETURN_IF_ERROR(RecordTokenizer(options.validation_prefix, tokenizer));
  }
  PENSTOCK_RETURN_IF_ERROR(start.writer->Finish());
  return RecordTokenizer(prefix, tokenizer);
}

}  // namespace

absl::StatusOr<ImportSummary> ImportDataset(const std::vector<std::string>& paths, const std::string& prefix,
                                            const ImportOptions& options) {
  const std::string validation_prefix = options.validation_share > 0 ? options.validation_prefix : "";
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<ImportFile> files, ListImportFiles(paths, options.format));
  LeaveOutUnfinished(prefix, files);
  if (!validation_prefix.empty()) LeaveOutUnfinished(validation_prefix, files);
  // Before the writers, so that it is given back after them.
  PENSTOCK_ASSIGN_OR_RETURN(const ImportLocks locks, TakeLocks(prefix, validation_prefix));
  PENSTOCK_ASSIGN_OR_RETURN(const ImportShape shape, ShapeOf(options));
  PENSTOCK_ASSIGN_OR_RETURN(ImportStart start, StartImport(prefix, options, shape, files));
  ImportMarks marks(prefix, shape, files, start, options.save_every);
  Importer importer(options, files, *start.writer, start.validation.get());
  const absl::Status read = importer.Run(start.point, ReachedBy(options, files, marks));
  if (!read.ok()) {
    LeaveForLater(marks, start);
    return SayWhatIsKept(read, marks);
  }
  if (const absl::Status sound = CheckSummary(importer.summary(), options); !sound.ok()) {
    PENSTOCK_RETURN_IF_ERROR(RemoveUnfinishedImport(prefix, validation_prefix));
    return sound;
  }
  if (const absl::Status finished = FinishDatasets(prefix, options, start); !finished.ok()) {
    LeaveForLater(marks, start);
    return finished;
  }
  PENSTOCK_RETURN_IF_ERROR(RemoveImportState(prefix));
  return importer.summary();
}

}  // namespace penstock
