// Where a schedule of a small pipeline stands, and how early it could end from there. For searches that try
// all schedules (brute_force_schedule.h, brute_force_exact.h).
//
// The bound: the rest of each micro-batch's way, and for each rank and link Jackson's preemptive schedule
// (Carlier 1982, "The one-machine sequencing problem").
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/unit/core/brute_force_schedule.h"

namespace penstock::core {

inline constexpr int kMaxRanks = 4;
inline constexpr int kMaxPasses = 40;
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

// How far a micro-batch is on a stage.
enum Phase : uint8_t { kWaiting, kForwardDone, kInputDone, kDone };

// Arrays: [micro_batch * stages + stage].
struct ScheduleState {
  // Ranks, then the links to their next ranks.
  std::array<int64_t, 2 * kMaxRanks> free_ns = {};
  std::array<int64_t, kMaxRanks> held_bytes = {};
  // End of the forward pass, and of the pass that makes the input's gradient.
  std::array<int64_t, kMaxPasses> forward_end = {};
  std::array<int64_t, kMaxPasses> input_end = {};
  // When the activation has reached the stage above, and its gradient this one; -1 before it is decided.
  std::array<int64_t, kMaxPasses> activation_ns;
  std::array<int64_t, kMaxPasses> gradient_ns;
  std::array<uint8_t, kMaxPasses> phase = {};
  std::array<uint8_t, kMaxPasses> choice = {};
  // What was put off until its rank has run something else.
  std::array<bool, kMaxPasses> put_off = {};
  // End of the last reduction so far.
  int64_t end_ns = 0;

  ScheduleState() {
    activation_ns.fill(-1);
    gradient_ns.fill(-1);
  }
};

class ScheduleBound {
 public:
  explicit ScheduleBound(const SmallPipeline& pipeline) : pipeline_(pipeline) { PrepareTails(); }

  // No schedule that goes on from `state` ends before; less exact once it is at least `limit_ns`.
  int64_t From(const ScheduleState& state, int64_t limit_ns);

 private:
  // What is left to do on a rank or link: earliest start, duration, least time from its end to the end of
  // all.
  struct Work {
    int64_t head = 0;
    int64_t duration = 0;
    int64_t tail = 0;
  };

  int Index(int m, int s) const { return m * pipeline_.stages + s; }
  int RankOf(int s) const { return pipeline_.position_of_stage[s]; }
  // Of the boundary above a stage.
  int LinkOf(int s) const { return pipeline_.positions + RankOf(s); }
  // Backward time from below: the choice that is taken, or the cheapest.
  int64_t BackwardNs(const ScheduleState& state, int m, int s) const {
    const SmallPass& pass = pipeline_.at(m, s);
    return pass.choices[state.phase[Index(m, s)] == kWaiting ? 0 : state.choice[Index(m, s)]].backward_ns;
  }
  int64_t WeightNs(int m, int s) const { return pipeline_.split ? pipeline_.at(m, s).weight_ns : 0; }

  void PrepareTails();
  // Adds what is left of a micro-batch to `left_`; returns a bound on its end.
  int64_t Remaining(const ScheduleState& state, int m);
  int64_t MachineBound(std::vector<Work>* jobs) const;

  const SmallPipeline& pipeline_;
  // From the end of a forward pass, and of an input gradient, to the end of all, from below.
  std::array<int64_t, kMaxPasses> forward_tail_ = {};
  std::array<int64_t, kMaxPasses> input_tail_ = {};
  // Of ranks and links.
  std::array<std::vector<Work>, 2 * kMaxRanks> left_;
};

}  // namespace penstock::core
