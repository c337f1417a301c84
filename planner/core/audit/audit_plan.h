// Judges a plan against the cost profile and the samples that it says it was made for: what the checker
// (planner/core/verify) cannot know from the plan alone.
//
//   std::vector<Violation> violations = CheckPlan(batch, plan);
//   if (violations.empty()) {
//     PENSTOCK_ASSIGN_OR_RETURN(violations, AuditPlan(batch, plan, profile));
//   }
//
// Violations carry numbers after those of the checker's rules:
//    9  costs: durations, bytes, what is exchanged inside passes and limits are those of the profile;
//    schedule,
//       layouts, sizes of micro-batches, recompute and topology those that Plan.options allow
//   10  samples: ids and lengths are those of the list
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/cost_profile.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/verify/check_plan.h"

namespace penstock::core {

// Violations that an answer holds at most.
inline constexpr size_t kMostListed = 32;
inline constexpr int kCostsRule = 9;
inline constexpr int kSamplesRule = 10;

// `plan` must have passed CheckPlan. At most kMostListed violations are listed, those of a plan whose model,
// mesh, options or samples no job can have among them. Takes time linear in the size of the plan (with stage
// groups, in that times their context ranks). Possible errors: INVALID_ARGUMENT (the profile is unfit: names
// the field).
absl::StatusOr<std::vector<Violation>> AuditPlan(const v1::Batch& batch, const v1::Plan& plan,
                                                 const v1::CostProfile& profile);

// Whether the plan's model has the sizes of the one that was profiled.
std::vector<Violation> AuditModel(const v1::Plan& plan, const v1::ModelSpec& profiled);

// A sample as it should be.
struct ListedSample {
  uint64_t sample_id = 0;
  uint32_t input_tokens = 0;
  uint32_t target_tokens = 0;
};

// Whether the batch has exactly these samples, in their order. At most kMostListed violations are listed.
std::vector<Violation> AuditSamples(const v1::Batch& batch, absl::Span<const ListedSample> samples);

}  // namespace penstock::core
