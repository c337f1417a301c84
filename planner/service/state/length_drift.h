// How far the lengths of a job's batches are from those that its stages and strategies were chosen for
// (PlanningOptions.typical_samples).
//
//   LengthDrift drift(spec.planning());
//   drift.Add(batch);                  // each that is accepted
//   if (drift.share() > 0.25) ...      // other stages or strategies may do better now
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock {

// Of the last batches: one counts half of what it did 32 batches before. Not thread-safe.
class LengthDrift {
 public:
  explicit LengthDrift(const v1::PlanningOptions& planning);

  void Add(const v1::Batch& batch);
  // From now on these are the lengths that batches are compared with.
  void Expect(const v1::PlanningOptions& planning);

  // Which share of the tokens is in samples of other lengths, 0 to 1: half the sum of differences between the
  // shares of tokens, over lengths that double. Nothing: the job names no typical samples, or has had no
  // batch since this planner serves it.
  std::optional<double> share() const;

 private:
  // By the number of bits of a length.
  using Tokens = std::array<double, 33>;

  static void AddSample(uint64_t tokens, Tokens* to);
  static double SumOf(const Tokens& tokens);

  Tokens typical_ = {};
  Tokens recent_ = {};
};

}  // namespace penstock
