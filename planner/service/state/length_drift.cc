#include "planner/service/state/length_drift.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace penstock {
namespace {

// Batches after which one counts half.
constexpr double kHalfLife = 32;

}  // namespace

LengthDrift::LengthDrift(const v1::PlanningOptions& planning) { Expect(planning); }

void LengthDrift::Expect(const v1::PlanningOptions& planning) {
  typical_ = {};
  for (const v1::SampleLengths& sample : planning.typical_samples())
    AddSample(uint64_t{sample.input_tokens()} + sample.target_tokens(), &typical_);
}

void LengthDrift::AddSample(uint64_t tokens, Tokens* to) {
  const size_t bits = std::min<size_t>(std::bit_width(tokens), to->size() - 1);
  (*to)[bits] += static_cast<double>(tokens);
}

double LengthDrift::SumOf(const Tokens& tokens) { return std::accumulate(tokens.begin(), tokens.end(), 0.0); }

void LengthDrift::Add(const v1::Batch& batch) {
  static const double kept = std::exp2(-1 / kHalfLife);
  for (double& tokens : recent_) tokens *= kept;
  for (const v1::Sample& sample : batch.samples())
    AddSample(uint64_t{sample.input_tokens()} + sample.target_tokens(), &recent_);
}

std::optional<double> LengthDrift::share() const {
  const double typical = SumOf(typical_), recent = SumOf(recent_);
  if (typical == 0 || recent == 0) return std::nullopt;
  double apart = 0;
  for (size_t bits = 0; bits < typical_.size(); ++bits)
    apart += std::abs(typical_[bits] / typical - recent_[bits] / recent);
  return apart / 2;
}

}  // namespace penstock
