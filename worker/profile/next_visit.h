// Which of the shapes that a form is fitted to is measured once more. Without LibTorch; pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "worker/profile/fit.h"

namespace penstock::worker {

struct VisitedShape {
  CostPoint point;
  size_t visits = 1;
  // There is time for another visit.
  bool open = true;
};

// Fewer than this, of which the first does not count (visits_of_shape.h), are no median that one disturbed
// visit cannot move, and leave a kind of a layer's passes without a visit that counts.
inline constexpr size_t kFewestVisits = 4;

// How much a fit to the shapes may be wrong at each of them: what noise of their visits makes of the fit
// there (its leverage, as in Cook, "Detection of influential observation in linear regression", Technometrics
// 1977), times how far it is off. Visits of a shape lower it as they lower noise.
std::vector<double> Doubts(const std::vector<VisitedShape>& shapes);

// One that has had fewer than kFewestVisits, the first with the fewest; behind these the most doubtful one.
// `fitted`: false where no form is fitted to them, which then all have as many. Nothing where none is open.
std::optional<size_t> NextVisit(const std::vector<VisitedShape>& shapes, bool fitted);

}  // namespace penstock::worker
