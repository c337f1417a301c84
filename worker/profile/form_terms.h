// The terms of a form of times (v1::LayerTime) at a measured shape.
#pragma once

#include <vector>

#include "worker/profile/fit.h"
#include "worker/profile/measured_profile.h"

namespace penstock::worker {

// In the order of FormTerms().
enum FormTerm : int {
  kFixed,
  kTargetToken,
  kTargetSquare,
  kCross,
  kSourceToken,
  kSourceSquare,
  kPackedRow,
  kTargetCall,
  kSourceCall,
  kDividedRow,
  kFormTerms
};

// What each coefficient of a form is multiplied with there, over the measured time. Of `form` only
// half_efficiency_tokens and its table of efficiency count.
std::vector<double> FormTerms(const CostPoint& point, const MeasuredTime& form);

// The coefficients of a form, and a form of such coefficients.
std::vector<double> CoefficientsOf(const MeasuredTime& form);
void SetCoefficients(const std::vector<double>& coefficients, MeasuredTime* form);

// How far what a form says is from each point, relative.
std::vector<double> DistancesOf(const std::vector<CostPoint>& points, const MeasuredTime& form);

}  // namespace penstock::worker
