// Figures of a part of the model, one after the other: those that were kept before an interruption, or else
// what is measured, which is kept; and how much of the time for measuring they took together.
//
//   PartFigures part({&kept, "layer"}, run.clocks().budget);
//   PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> times, part.Get("3", 2, [&] { return Measure(); }));
//   if (part.SpentNs() > budget_ns) ...
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/profile/kept_times.h"
#include "worker/profile/measured_device.h"

namespace penstock::worker {

// What is found is kept under the name of the part and what it is of.
struct KeptPart {
  // Outlives whoever has it.
  KeptTimes* times = nullptr;
  std::string name;
};

class PartFigures {
 public:
  // `clock`: of the time for measuring.
  PartFigures(KeptPart kept, NanosecondClock clock)
      : kept_(std::move(kept)), clock_(std::move(clock)), start_(clock_()) {}

  // Null: nothing was kept.
  const KeptFigures* Find(const std::string& what) const { return kept_.times->Find(NameOf(what)); }

  // `count` figures, which `measure` finds where they are not kept. Possible errors: those of `measure` and
  // of KeptTimes::Keep.
  template <typename Measure>
  absl::StatusOr<std::vector<double>> Get(const std::string& what, size_t count, const Measure& measure) {
    if (const KeptFigures* const before = Find(what); before != nullptr && before->values.size() == count) {
      kept_ns_ += before->spent_ns;
      return before->values;
    }
    KeptFigures figures;
    const double start = clock_();
    PENSTOCK_ASSIGN_OR_RETURN(figures.values, measure());
    figures.spent_ns = clock_() - start;
    PENSTOCK_RETURN_IF_ERROR(Keep(what, figures));
    return figures.values;
  }
  absl::Status Keep(const std::string& what, const KeptFigures& figures) {
    return kept_.times->Keep(NameOf(what), figures);
  }

  // Of the time for measuring, what is kept among it.
  double SpentNs() const { return clock_() - start_ + kept_ns_; }

 private:
  std::string NameOf(const std::string& what) const { return absl::StrCat(kept_.name, "/", what); }

  const KeptPart kept_;
  const NanosecondClock clock_;
  const double start_;
  double kept_ns_ = 0;
};

}  // namespace penstock::worker
