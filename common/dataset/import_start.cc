#include "common/dataset/import_start.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dataset/import_lock.h"
#include "common/dataset/import_reader.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

DatasetWriterOptions WriterOptions(const ImportOptions& options) { return {.vocab = options.vocab}; }

// What the import before had otherwise; empty: nothing.
std::string ShapeDifference(const ImportShape& before, const ImportShape& now) {
  const auto program = before.find(kShapeProgram);
  if (program == before.end() || program->second != now.at(kShapeProgram))
    return "it is of another version of penstock";
  for (const auto& [name, value] : now) {
    const auto other = before.find(name);
    if (other == before.end() || other->second != value)
      return absl::StrCat("its ", name, " was ", name == "--tokenizer" ? "another" : "different");
  }
  return "";
}

// How many files a point depends on: those before it, and the one that it is within.
size_t FilesOf(const ImportPoint& point) { return point.file + (point.items > 0 ? 1 : 0); }

// Which of the files that a point depends on is another than before; empty: none.
std::string FileDifference(const ImportPoint& point, const std::vector<ImportFile>& before,
                           const std::vector<ImportFile>& now) {
  for (size_t i = 0; i < FilesOf(point); ++i) {
    if (i >= now.size()) return absl::StrCat("'", before[i].path, "' is not among the files any more");
    if (IsUnchanged(before[i], now[i])) continue;
    if (before[i].path != now[i].path)
      return absl::StrCat("'", now[i].path, "' is where '", before[i].path, "' was among the files");
    return absl::StrCat("'", now[i].path, "' has changed");
  }
  return "";
}

absl::Status OpenWriters(const std::string& prefix, const ImportOptions& options, const ImportMark& mark,
                         ImportStart& start) {
  PENSTOCK_ASSIGN_OR_RETURN(start.writer,
                            IndexedDatasetWriter::OpenAt(prefix, WriterOptions(options), mark.writer));
  if (!mark.validation.has_value()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(
      start.validation,
      IndexedDatasetWriter::OpenAt(options.validation_prefix, WriterOptions(options), *mark.validation));
  return absl::OkStatus();
}

// Whether an error says that a part is not there, or is not what it was; others pass.
bool IsGone(const absl::Status& status) { return absl::IsNotFound(status) || absl::IsDataLoss(status); }

// Where an import goes on, or why it does not.
struct GoingOn {
  std::optional<ImportStart> start;
  std::string why_not;
};

// At one of the state's marks. Possible errors: those of IndexedDatasetWriter::OpenAt that may pass.
absl::StatusOr<GoingOn> GoOn(const std::string& prefix, const ImportOptions& options,
                             const ImportState& state, const ImportShape& shape,
                             const std::vector<ImportFile>& files) {
  GoingOn found;
  found.why_not = ShapeDifference(state.shape, shape);
  if (!found.why_not.empty()) return found;
  for (const ImportMark* mark : {&state.latest, &state.file_begin}) {
    // Nothing is gained at the beginning of all.
    if (mark->point == ImportPoint()) continue;
    std::string difference = FileDifference(mark->point, state.files, files);
    if (difference.empty()) {
      ImportStart start;
      const absl::Status opened = OpenWriters(prefix, options, *mark, start);
      if (opened.ok()) {
        start.point = mark->point;
        start.state = ImportState{.shape = shape, .latest = *mark, .file_begin = state.file_begin};
        found.start = std::move(start);
        return found;
      }
      if (!IsGone(opened)) return opened;
      difference = std::string(opened.message());
    }
    // What hinders the latest says most.
    if (found.why_not.empty()) found.why_not = std::move(difference);
  }
  return found;
}

void TellGoingOn(const ImportOptions& options, const ImportPoint& point,
                 const std::vector<ImportFile>& files) {
  EarlierImport earlier = {.goes_on = true,
                           .items = point.items,
                           .samples = point.summary.samples + point.summary.validation_samples};
  if (point.file < files.size()) {
    earlier.file = files[point.file].path;
    earlier.item = std::string(ItemWord(files[point.file].kind));
  }
  if (options.earlier) options.earlier(earlier);
}

// What is left aside of a dataset for validation that this import does not write, unless another one does.
absl::Status RemoveEarlierValidation(const std::string& prefix) {
  const absl::StatusOr<ImportLock> lock = ImportLock::Take(prefix);
  return lock.ok() ? IndexedDatasetWriter::RemoveUnfinished(prefix) : absl::OkStatus();
}

absl::StatusOr<ImportStart> BeginAnew(const std::string& prefix, const ImportOptions& options,
                                      const std::optional<ImportState>& earlier) {
  const std::string validation = options.validation_share > 0 ? options.validation_prefix : "";
  if (earlier.has_value()) {
    const std::string& before = earlier->shape.at(kShapeValidation);
    if (!before.empty() && before != validation) PENSTOCK_RETURN_IF_ERROR(RemoveEarlierValidation(before));
  }
  PENSTOCK_RETURN_IF_ERROR(RemoveUnfinishedImport(prefix, validation));
  ImportStart start;
  PENSTOCK_ASSIGN_OR_RETURN(start.writer, IndexedDatasetWriter::Create(prefix, WriterOptions(options)));
  if (validation.empty()) return start;
  PENSTOCK_ASSIGN_OR_RETURN(start.validation,
                            IndexedDatasetWriter::Create(validation, WriterOptions(options)));
  return start;
}

}  // namespace

absl::StatusOr<ImportStart> StartImport(const std::string& prefix, const ImportOptions& options,
                                        const ImportShape& shape, const std::vector<ImportFile>& files) {
  const absl::StatusOr<std::optional<ImportState>> read = ReadImportState(prefix);
  const std::optional<ImportState> earlier = read.ok() ? *read : std::nullopt;
  if (options.restart || (read.ok() && !earlier.has_value())) return BeginAnew(prefix, options, earlier);
  if (!read.ok() && !absl::IsInvalidArgument(read.status())) return read.status();
  GoingOn found = {.start = std::nullopt, .why_not = std::string(read.status().message())};
  if (earlier.has_value()) {
    PENSTOCK_ASSIGN_OR_RETURN(found, GoOn(prefix, options, *earlier, shape, files));
  }
  if (found.start.has_value()) {
    TellGoingOn(options, found.start->point, files);
    return *std::move(found.start);
  }
  if (options.earlier) options.earlier({.goes_on = false, .reason = found.why_not});
  return BeginAnew(prefix, options, earlier);
}

absl::Status RemoveUnfinishedImport(const std::string& prefix, const std::string& validation_prefix) {
  // First, and for good: it must not outlive the files that it is about.
  PENSTOCK_RETURN_IF_ERROR(RemoveImportState(prefix));
  PENSTOCK_RETURN_IF_ERROR(IndexedDatasetWriter::RemoveUnfinished(prefix));
  return validation_prefix.empty() ? absl::OkStatus()
                                   : IndexedDatasetWriter::RemoveUnfinished(validation_prefix);
}

}  // namespace penstock
