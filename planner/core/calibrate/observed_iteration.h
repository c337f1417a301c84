// What the ranks reported of an iteration, beside its plan, as measurements of costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/plan.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/core/calibrate/measured_pass.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/topology/link.h"

namespace penstock::core {

// What takes less by the costs is noise: what is free has no ratio.
inline constexpr int64_t kFreeNs = 1000;

// Nothing is owned. Reports of all ranks, in rank order.
struct ObservedIteration {
  const v1::Batch* batch = nullptr;
  const v1::Plan* plan = nullptr;
  std::vector<const v1::ReportIterationRequest*> reports;
};

// What a transfer took at its two ends over what the costs expect of its kind of link. Each end also waited
// for the other one to come. 0: that end did not report it.
struct MeasuredTransfer {
  int from = 0;
  int to = 0;
  Link link = Link::kInsideNode;
  double sent = 0;
  double received = 0;

  // Of the end that waited less.
  double Shorter() const {
    return sent > 0 && received > 0 ? std::min(sent, received) : std::max(sent, received);
  }
};

// From rank to rank. Of a ring those over the slowest kind of link: which of them held it up, a ring does not
// tell.
using RingSteps = std::vector<std::pair<int, int>>;

// What the sum of a stage's gradients over its ranks, in a ring, took over what the costs expect: of the rank
// that waited least for the others.
struct MeasuredRing {
  RingSteps steps;
  Link link = Link::kInsideNode;
  double ratio = 0;
};

// What a RESHARD took over what the costs expect, of the rank that waited least for the others. All ranks
// send to all others: it does not tell which link of this kind held it up.
struct MeasuredReshard {
  Link link = Link::kInsideNode;
  double ratio = 0;
};

// The optimizer step of the rank that waited least for the others, all of which take part in the norm of all
// gradients, and what the costs expect: of the update, above 0, and of the all-gather of parameters behind it
// where the optimizer's state is divided.
struct MeasuredStep {
  double measured_ns = 0;
  double update_ns = 0;
  double gather_ns = 0;
  // Of the all-gather.
  RingSteps ring = {};
  Link link = Link::kInsideNode;
};

struct Measurements {
  // Of groups.
  std::vector<MeasuredPass> passes;
  // Of ranks of stage groups of several, where they say how long they waited inside; none where ranks divide
  // experts: what comes to a rank's experts, nobody plans.
  std::vector<MeasuredPass> rank_passes;
  // One of an iteration.
  std::vector<MeasuredStep> steps;
  std::vector<MeasuredTransfer> transfers;
  std::vector<MeasuredRing> rings;
  std::vector<MeasuredReshard> reshards;
};

// `passes` of stage groups of several ranks are those of the rank alone that has most to do, without what
// they exchange by the plan; rows of experts by `in_effect`. Both are of the job that the plan is of, with
// routers as they were then: `costs` are those that factors are of. Possible errors: INVALID_ARGUMENT (the
// plan is of another job, or a report names an instruction that its program lacks).
absl::StatusOr<Measurements> MeasurementsOf(const ObservedIteration& iteration, const CostModel& costs,
                                            const CostModel& in_effect, const Job& job);

// The longest of the ranks.
int64_t MeasuredMakespanNs(const ObservedIteration& iteration);

}  // namespace penstock::core
