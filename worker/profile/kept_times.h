// What a measurement has found so far, in a file, so that one that was interrupted goes on where it was.
//
//   PENSTOCK_ASSIGN_OR_RETURN(KeptTimes kept, KeptTimes::Open(path, "a GPT of ... on ..."));
//   if (const KeptFigures* before = kept.Find("layer/3"); before != nullptr) ...
//   PENSTOCK_RETURN_IF_ERROR(kept.Keep("layer/3", {.values = {...}, .spent_ns = ...}));
//   ...
//   PENSTOCK_RETURN_IF_ERROR(kept.Remove());
#pragma once

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace penstock::worker {

// Of one shape, or another thing that is measured in one go.
struct KeptFigures {
  std::vector<double> values;
  // Of the time for measuring.
  double spent_ns = 0;
};

class KeptTimes {
 public:
  // A machine is not tomorrow what it is today.
  static constexpr absl::Duration kMostAge = absl::Hours(24);

  // Keeps nothing.
  KeptTimes() = default;

  // Goes on with the file where it is of the same thing (`of`: model, settings, machine) and not too old;
  // else begins anew. A last line that was cut off is as though it had not been written. Possible errors:
  // UNAVAILABLE (names the file).
  static absl::StatusOr<KeptTimes> Open(const std::string& path, const std::string& of,
                                        absl::Time now = absl::Now());

  // Found in the file; null: not yet measured.
  const KeptFigures* Find(const std::string& what) const;
  // Possible errors: UNAVAILABLE (names the file).
  absl::Status Keep(const std::string& what, const KeptFigures& figures);
  // It has come to its end: the file goes. Possible errors: those of RemoveFile.
  absl::Status Remove();

  // What was there when it was opened.
  size_t found() const { return found_.size(); }

 private:
  std::string path_;
  std::map<std::string, KeptFigures> found_;
  // Null: nothing is kept.
  std::unique_ptr<std::ofstream> file_;
};

}  // namespace penstock::worker
