// The lengths of a dataset's samples while it is written: on disk, so that memory does not grow with them,
// and so that another process can go on. Used by IndexedDatasetWriter.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/indexed_dataset.h"
#include "common/dataset/partial_file.h"
#include "common/status/status_macros.h"

namespace penstock {

// Of PREFIX, aside from its .idx. Possible errors of all methods: those of PartialFile.
class WrittenLengths {
 public:
  static absl::StatusOr<WrittenLengths> Create(const std::string& prefix);
  static absl::StatusOr<WrittenLengths> OpenAt(const std::string& prefix, const FileMark& mark);
  // What another process has left; fine where nothing is.
  static absl::Status Remove(const std::string& prefix);

  absl::Status Add(const SampleLength& length) {
    const uint32_t pair[] = {length.input, length.target};
    return file_.Write(pair, 2);
  }

  uint64_t samples() const { return file_.mark().bytes / kBytesOfOne; }

  // Calls visit(length) for each sample in order, until it returns an error.
  template <typename Visit>
  absl::Status ForEach(const Visit& visit) {
    std::vector<uint32_t> pairs(2 << 15);
    file_.Rewind();
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(const size_t count, file_.Read(pairs.data(), pairs.size()));
      if (count == 0) return absl::OkStatus();
      for (size_t i = 0; i + 1 < count; i += 2)
        PENSTOCK_RETURN_IF_ERROR(visit(SampleLength{.input = pairs[i], .target = pairs[i + 1]}));
    }
  }

  const FileMark& mark() const { return file_.mark(); }
  absl::Status Sync() { return file_.Sync(); }
  void Keep() { file_.Keep(); }
  void Discard() { file_.Discard(); }

 private:
  static constexpr uint64_t kBytesOfOne = 2 * sizeof(uint32_t);

  explicit WrittenLengths(PartialFile file) : file_(std::move(file)) {}

  PartialFile file_;
};

}  // namespace penstock
