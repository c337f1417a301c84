// Random jobs and batches of every kind that the planner takes: architectures, policies, layouts, schedules,
// recompute, stages of uneven size, several on a rank, links of two speeds, from far too little memory to
// plenty.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// Uniform in [low, high]; the same on every platform, unlike std::uniform_int_distribution.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint32_t Range(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(engine_() % (uint64_t{high} - low + 1));
  }
  bool Chance(uint32_t percent) { return Range(1, 100) <= percent; }

 private:
  std::mt19937_64 engine_;
};

struct RandomJobLimits {
  uint32_t samples = 12;
  uint32_t pipeline = 4;
  uint32_t replicas = 3;
  uint32_t layers = 9;
  // Of a stage group, at most; 4 tensor ranks at most.
  uint32_t context = 1;
  uint32_t tensor = 1;
  // Of so many GPTs in a hundred ranks of a stage group divide experts.
  uint32_t expert_percent = 0;
  // Of so many of these some layers have no experts.
  uint32_t dense_percent = 0;
  // Of so many of these in a hundred, routers are uneven.
  uint32_t uneven_percent = 0;
  // Of so many jobs in a hundred some ranks are slow, and of so many some links.
  uint32_t slow_percent = 0;
  uint32_t slow_link_percent = 0;
  // Of so many ranks have limits of memory of their own.
  uint32_t rank_memory_percent = 0;
  // Of so many parameters live in shares.
  uint32_t shares_percent = 0;
  // Of so many of these the shares of ranks differ.
  uint32_t weights_percent = 0;
  // Of so many GPTs in a hundred attention has windows, in all layers or in some.
  uint32_t windows_percent = 0;
  // Of so many jobs in a hundred whose profile has no tables, backward passes have closed forms of their own.
  uint32_t backward_forms_percent = 0;
  // Of so many jobs in a hundred kernels of attention make something for all rows of a call.
  uint32_t calls_percent = 0;
  // Of so many optimizer steps have a fixed part.
  uint32_t fixed_step_percent = 0;
  // Of so many collectives have speeds by their number of ranks.
  uint32_t speeds_percent = 0;
  // Of so many jobs in a hundred a token takes longer among some numbers of tokens than among others.
  uint32_t efficiency_percent = 0;
};

struct RandomPlanningCase {
  v1::JobSpec job;
  v1::Batch batch;

  // For messages.
  std::string Describe() const;
};

// Weights of so many ranks' shares, of which some are 0 and others far larger.
void RandomShareWeights(uint64_t ranks, Random* random, v1::PlanningOptions* planning);

RandomPlanningCase MakeRandomCase(uint64_t seed, const RandomJobLimits& limits);

// Whether a link is slower in one direction: brute force knows one time of a transfer for both.
bool HasOneWayLinks(const v1::CostProfile& profile);

}  // namespace penstock::core
