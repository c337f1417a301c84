#include "common/dataset/import_marks.h"

#include <algorithm>
#include <utility>

#include "common/status/status_macros.h"

namespace penstock {

using std::chrono::steady_clock;

ImportMarks::ImportMarks(const std::string& prefix, const ImportShape& shape,
                         const std::vector<ImportFile>& files, const ImportStart& start, absl::Duration every)
    : prefix_(prefix),
      files_(files),
      start_(start),
      every_(absl::ToChronoNanoseconds(every)),
      goes_on_(start.state.has_value()) {
  state_ = goes_on_ ? *start.state : ImportState{.shape = shape};
  if (goes_on_) noted_ = began_;
  const auto special = std::ranges::find(files, false, &ImportFile::regular);
  regular_files_ = static_cast<size_t>(special - files.begin());
}

bool ImportMarks::CanBeTold(const ImportPoint& point) const {
  return point.file + (point.items > 0 ? 1 : 0) <= regular_files_;
}

absl::Status ImportMarks::Reached(const ImportPoint& point) {
  ImportMark mark = {.point = point, .writer = start_.writer->Mark()};
  if (start_.validation != nullptr) mark.validation = start_.validation->Mark();
  if (point.items == 0) state_.file_begin = mark;
  // What was cut off of the files is taken out of the state at once.
  const bool due = std::exchange(goes_on_, false) || steady_clock::now() - noted_.value_or(began_) >= every_;
  if (!due || point == ImportPoint() || !CanBeTold(point)) return absl::OkStatus();
  return Note(std::move(mark));
}

absl::Status ImportMarks::Note(ImportMark mark) {
  PENSTOCK_RETURN_IF_ERROR(start_.writer->Sync());
  if (start_.validation != nullptr) PENSTOCK_RETURN_IF_ERROR(start_.validation->Sync());
  const size_t files = std::min(mark.point.file + 1, files_.size());
  state_.files.assign(files_.begin(), files_.begin() + static_cast<std::ptrdiff_t>(files));
  state_.latest = std::move(mark);
  PENSTOCK_RETURN_IF_ERROR(WriteImportState(prefix_, state_));
  noted_ = steady_clock::now();
  return absl::OkStatus();
}

}  // namespace penstock
