// Traces of iterations, predicted or measured, in Chrome's trace format: opens in Perfetto (ui.perfetto.dev)
// and in chrome://tracing.
//
// Passes of a stage group say what the rank would take alone, and what it exchanges inside; those that were
// measured, where it is known, how long the rank waited for that (exchange_ms) and what it computed.
//
// One process for each rank, one thread for each stream, a slice for each instruction, an arrow from each
// SEND to the WAIT for its data, and a counter of each rank's memory.
//
//   Trace trace;
//   trace.AddPredicted(plan);                               // what `penstock plan --trace` writes
//   trace.AddMeasured(plan, times_by_rank);                 // what ranks reported, `penstock up --trace`
//   trace.AddPlannedBeside(plan, start_ns);                 // what was planned, beside what was measured
//   PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically(path, trace.ToJson()));
//
// Format: "Trace Event Format", Google, 2016.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "penstock/v1/cost_profile.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/timeline/instruction_time.h"
#include "planner/core/timeline/wait_causes.h"

namespace penstock::cli {

using core::InstructionTime;

class Trace {
 public:
  // The times that the plan expects, from `origin_ns` on.
  void AddPredicted(const v1::Plan& plan, int64_t origin_ns = 0);

  // `times_by_rank[r]` are those of rank r; ranks and instructions may be missing, ids that the program lacks
  // are left out. `profile`: that of the plan, if it is known; of passes that it says are on a slow stage
  // group, the trace says by what. `core_shares`: by rank, for how much of the time of its passes it had a
  // core, if that is known.
  void AddMeasured(const v1::Plan& plan, const core::TimesByRank& times_by_rank,
                   const v1::CostProfile& profile = {}, const std::vector<double>& core_shares = {});

  // A rank's wait for its batch.
  void AddBatchWait(const v1::Plan& plan, int rank, int64_t start_ns, int64_t duration_ns);

  // What the plan expects, from `origin_ns` on, as a process of its own below each rank's: names and times
  // alone. Who reads operations out of the trace (`penstock diagnose --trace`) does not see it.
  void AddPlannedBeside(const v1::Plan& plan, int64_t origin_ns);

  std::string ToJson() const;

 private:
  struct RankLook {
    // In its stage group, for people; empty without groups.
    std::string place;
    // By what the plan's costs say that ranks are slow.
    const std::vector<double>& slow_factors;
    double core_share = 1;
    // By id: of instructions that wait.
    std::map<uint32_t, core::WaitCause> waits;
  };
  void AddProgram(const v1::Plan& plan, int rank, const RankLook& look,
                  const std::vector<InstructionTime>& times);
  void AddNames(const v1::Program& program, const std::string& place);
  // Of a process: what it is called, and where it stands among the others.
  void AddProcess(int64_t process, const std::string& name, int64_t position);
  void AddSlice(const v1::Plan& plan, int rank, const v1::Instruction& instruction, const RankLook& look,
                const InstructionTime& time);
  void AddFlow(const v1::Plan& plan, int rank, const std::string& place, const v1::Instruction& instruction,
               const InstructionTime& time);
  void AddMemory(const v1::Program& program, const std::vector<InstructionTime>& times);

  // Finished JSON objects.
  std::vector<std::string> events_;
  // Ranks that already have names, and those whose planned processes do.
  std::vector<bool> named_;
  std::vector<bool> planned_named_;
};

}  // namespace penstock::cli
