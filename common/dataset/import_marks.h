// Notes now and then how far an import is (import_state.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/dataset/import_start.h"
#include "common/dataset/import_state.h"

namespace penstock {

class ImportMarks {
 public:
  // All arguments but the time outlive this.
  ImportMarks(const std::string& prefix, const ImportShape& shape, const std::vector<ImportFile>& files,
              const ImportStart& start, absl::Duration every);

  // The writers have all that is before the point. Notes it once its time has come. Possible errors: those of
  // the writers and of WriteImportState.
  absl::Status Reached(const ImportPoint& point);

  // Whether there is one, so that another import can go on.
  bool any() const { return noted_.has_value(); }

 private:
  // Whether another process can tell that the files before the point are the same.
  bool CanBeTold(const ImportPoint& point) const;
  absl::Status Note(ImportMark mark);

  const std::string& prefix_;
  const std::vector<ImportFile>& files_;
  const ImportStart& start_;
  const std::chrono::nanoseconds every_;
  ImportState state_;
  // How many files come before the first one that is no regular one.
  size_t regular_files_ = 0;
  std::optional<std::chrono::steady_clock::time_point> noted_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  // Whether what stands in the file is what an earlier import has noted there.
  bool goes_on_ = false;
};

}  // namespace penstock
