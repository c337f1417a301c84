// What an executed iteration leaves: figures and measurements. Without LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/agent/control_plane.h"
#include "worker/runtime/votes.h"

namespace penstock::worker {

struct IterationResult {
  // Of this rank's micro-batches; 0 without the last stage.
  double loss = 0;
  // Of this rank's micro-batches, where the job has tasks; ascending.
  std::vector<MeasuredTask> tasks = {};
  // Global, before clipping.
  double gradient_norm = 0;
  // Of what this rank speaks for, before clipping; ascending.
  std::vector<MeasuredPart> parts = {};
  double learning_rate = 0;
  // Those of all ranks.
  Votes votes = {};
  // What the rank's tensors took at most at once, by the allocator's statistics; 0 on CPU where they are not
  // counted.
  int64_t peak_memory_bytes = 0;
  // Of all layers with experts: the most rows that an expert of this rank had, over an even share; 0: none.
  double expert_load = 0;
  // See ReportIterationRequest.expert_rows and fullest_expert_rows.
  std::vector<uint64_t> expert_rows = {};
  std::vector<uint64_t> fullest_expert_rows = {};
  // See ReportIterationRequest.routed_expert_rows.
  uint64_t routed_expert_rows = 0;
  uint64_t dropped_expert_rows = 0;
  // Weighted losses of routers, of this rank's layers and tokens.
  double router_balance_loss = 0;
  double router_z_loss = 0;
  // Wall clock when the first instruction began; instruction times count from here.
  int64_t started_unix_ns = 0;
  int64_t duration_ns = 0;
  // See ReportIterationRequest.
  int64_t lone_pass_ns = 0;
  int64_t lone_pass_core_ns = 0;
  std::vector<MeasuredInstruction> instructions = {};
  // Where the program has one: what it found. Nothing else here counts it.
  std::optional<ValidationReport> validation = {};
};

}  // namespace penstock::worker
