#include "tests/integration/streams/recorded_streams.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::worker {

absl::Status RecordedStreams::Reset(size_t count) {
  set_.assign(count, 0);
  settings_ = 0;
  return absl::OkStatus();
}

absl::Status RecordedStreams::Enter(Stream stream) {
  entered_ = stream;
  return absl::OkStatus();
}

// The last mark is set anew for each work beside an instruction (IterationMarks::beside).
absl::Status RecordedStreams::Set(Mark mark) {
  if (mark >= set_.size()) return absl::InternalError(absl::StrCat("there is no mark ", mark));
  if (set_[mark] != 0 && mark + 1 < set_.size())
    return absl::InternalError(absl::StrCat("mark ", mark, " is set twice"));
  set_[mark] = ++settings_;
  Record(Call::kSet, mark);
  return absl::OkStatus();
}

absl::Status RecordedStreams::CheckMark(Mark mark) const {
  if (mark < set_.size() && set_[mark] != 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("mark ", mark, " was not set"));
}

// A real stream does not wait for a mark that nobody has set: the order would be lost without a word.
absl::Status RecordedStreams::WaitFor(Mark mark) {
  PENSTOCK_RETURN_IF_ERROR(CheckMark(mark));
  Record(Call::kWaitFor, mark);
  return absl::OkStatus();
}

absl::Status RecordedStreams::Use(const at::Tensor& tensor) {
  if (!tensor.defined()) return absl::InternalError("there is no tensor to use");
  Record(Call::kUse);
  return absl::OkStatus();
}

absl::Status RecordedStreams::Synchronize() {
  Record(Call::kHostWait);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RecordedStreams::Between(Mark from, Mark to) {
  PENSTOCK_RETURN_IF_ERROR(CheckMark(from));
  PENSTOCK_RETURN_IF_ERROR(CheckMark(to));
  return set_[to] - set_[from];
}

}  // namespace penstock::worker
