// What a plan promises, in a few numbers, for people and for machines.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/row_exchange.h"
#include "planner/cli/span_counts.h"

namespace penstock::cli {

// A cause of waiting and its share of the ranks' time.
struct BubbleShare {
  const char* cause = "";
  double share = 0;
};

// One row of `compare --json` (DESIGN section 9).
struct PlanSummary {
  std::string policy = {};
  uint64_t batch = 0;
  int samples = 0;
  // Over all replicas.
  int micro_batches = 0;
  double planning_ms = 0;
  double makespan_ms = 0;
  // End of the last computation of a micro-batch: the makespan without reduction of gradients and optimizer
  // step.
  double last_backward_ms = 0;
  double lower_bound_ms = 0;
  // makespan / lower bound - 1.
  double gap = 0;
  // Real tokens / computed tokens.
  double padding_efficiency = 0;
  // Share of the ranks' time in which they do not compute.
  double bubble = 0;
  // By cause, in the order of v1::Bubble; their sum is `bubble`.
  std::vector<BubbleShare> bubble_by_cause = {};
  // Of the fullest rank, millions of bytes.
  double peak_memory_mb = 0;
  // Over how many context ranks samples are divided; empty where there is one.
  std::vector<SpanCount> spans = {};
  // Of experts on other ranks; all 0 where there are none.
  RowExchange rows = {};
  // The word that --schedule takes, and the layers of each stage in stage order.
  std::string schedule = {};
  std::vector<uint32_t> layers_per_stage = {};
  // Of a job with strategies, which of them, and its mesh, "pp 2 x dp 4".
  uint32_t strategy = 0;
  std::string mesh = {};
  // Of the ranks' shares of parameters; empty: all are alike, or there are none.
  std::vector<uint32_t> share_weights = {};
  // False when no plan fits; `reason` says why, and the numbers after planning_ms mean nothing.
  bool feasible = true;
  std::string reason = {};
};

// The part of `bubble` in which ranks wait inside passes for the slowest of their stage group.
double GroupWait(const PlanSummary& summary);

PlanSummary Summarize(const std::string& policy, const v1::Batch& batch, const v1::Plan& plan);
PlanSummary SummarizeInfeasible(const std::string& policy, const v1::Batch& batch, double planning_ms,
                                const absl::Status& reason);

// Fields in the order above; null where they mean nothing.
nlohmann::ordered_json ToJson(const PlanSummary& summary);

// Text for stdout, never an exception: bytes that are no UTF-8 are replaced.
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace penstock::cli
