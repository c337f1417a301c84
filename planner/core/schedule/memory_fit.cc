#include "planner/core/schedule/memory_fit.h"

#include <algorithm>

namespace penstock::core {
namespace {

// Walks through the passes of one stage.
class StageFit {
 public:
  StageFit(const CostModel& costs, const PipelineMemory& pipeline, const MemoryFitOptions& options, int stage,
           std::vector<StageRecompute>* recompute)
      : costs_(costs), pipeline_(pipeline), options_(options), stage_(stage), recompute_(*recompute) {
    for (int m = 0; m < pipeline.micro_batches; ++m) {
      Recompute(m) = InitialRecompute(costs.stage(stage), options.mode);
    }
  }

  // `ahead`: what the stage before runs ahead, and receives this stage's.
  bool Run(std::vector<int32_t>* ahead);

 private:
  const StageMemory& Memory(int m) const { return pipeline_.memory[Index(m)]; }
  StageRecompute& Recompute(int m) { return recompute_[Index(m)]; }
  size_t Index(int m) const { return static_cast<size_t>(m) * pipeline_.stages + stage_; }

  // Bytes above the limit while micro-batches first..last are on the stage.
  int64_t Deficit(int first, int last);
  // Recomputes more in micro-batches last..first until the deficit is gone; false when it stays.
  bool Relieve(int first, int last);
  // Moves layers of one micro-batch to a level until `deficit` is covered; returns what is left of it.
  int64_t Demote(int m, RecomputeLevel level, int64_t deficit);
  bool Admit(int first, int last);

  const CostModel& costs_;
  const PipelineMemory& pipeline_;
  const MemoryFitOptions& options_;
  const int stage_;
  std::vector<StageRecompute>& recompute_;
};

int64_t StageFit::Deficit(int first, int last) {
  int64_t held = 0;
  int64_t passing = 0;
  for (int m = first; m <= last; ++m) {
    held += HeldBytes(costs_, stage_, Memory(m), Recompute(m));
    passing = std::max(passing, PassingBytes(Memory(m)));
  }
  return held + passing - options_.available_bytes[stage_];
}

int64_t StageFit::Demote(int m, RecomputeLevel level, int64_t deficit) {
  const int layers = costs_.stage(stage_).layers();
  while (deficit > 0) {
    StageRecompute next = Recompute(m);
    if (level == kKeepInput) {
      if (next.full == layers) break;
      ++next.full;
      // A layer of the level between is given up first only when no other is left.
      next.selective = std::min(next.selective, layers - next.full);
    } else {
      if (next.selective + next.full == layers) break;
      ++next.selective;
    }
    const int64_t saved =
        costs_.StoredBytes(stage_, Memory(m), Recompute(m)) - costs_.StoredBytes(stage_, Memory(m), next);
    Recompute(m) = next;
    deficit -= saved;
  }
  return deficit;
}

bool StageFit::Relieve(int first, int last) {
  int64_t deficit = Deficit(first, last);
  if (costs_.has_selective()) {
    for (int m = last; m >= first && deficit > 0; --m) deficit = Demote(m, kKeepSelective, deficit);
  }
  for (int m = last; m >= first && deficit > 0; --m) deficit = Demote(m, kKeepInput, deficit);
  return deficit <= 0;
}

bool StageFit::Admit(int first, int last) {
  if (Deficit(first, last) <= 0) return true;
  if (options_.mode != RecomputeMode::kAuto) return false;
  if (options_.prefer_waiting && last > first) return false;
  std::vector<StageRecompute> before;
  for (int m = first; m <= last; ++m) before.push_back(Recompute(m));
  if (Relieve(first, last)) return true;
  // Waiting is the only way: do not pay for both.
  for (int m = first; m <= last; ++m) Recompute(m) = before[m - first];
  return false;
}

bool StageFit::Run(std::vector<int32_t>* ahead) {
  const int count = pipeline_.micro_batches;
  int forwards = 0;
  for (int j = 0; j < count; ++j) {
    const int wanted = options_.serial ? j + 1 : std::min(count, j + pipeline_.stages - stage_);
    const int limit = std::min(wanted, (*ahead)[j]);
    while (forwards < limit && Admit(j, forwards)) ++forwards;
    if (forwards <= j) return false;
    (*ahead)[j] = forwards;
  }
  return true;
}

}  // namespace

int64_t HeldBytes(const CostModel& costs, int stage, const StageMemory& memory,
                  const StageRecompute& recompute) {
  return costs.StoredBytes(stage, memory, recompute) + memory.input + memory.tokens;
}

int64_t PassingBytes(const StageMemory& memory) { return memory.peak + 3 * memory.input + 3 * memory.output; }

StageRecompute InitialRecompute(const Stage& stage, RecomputeMode mode) {
  if (mode == RecomputeMode::kSelective) return {stage.layers(), 0};
  if (mode == RecomputeMode::kFull) return {0, stage.layers()};
  return {0, 0};
}

bool FitMemory(const CostModel& costs, const PipelineMemory& pipeline, const MemoryFitOptions& options,
               std::vector<StageRecompute>* recompute, PassOrder* order) {
  recompute->resize(pipeline.memory.size());
  order->forwards_before.resize(pipeline.memory.size());
  std::vector<int32_t> ahead(pipeline.micro_batches, pipeline.micro_batches);
  for (int stage = 0; stage < pipeline.stages; ++stage) {
    if (!StageFit(costs, pipeline, options, stage, recompute).Run(&ahead)) return false;
    std::copy(ahead.begin(), ahead.end(),
              order->forwards_before.begin() + static_cast<size_t>(stage) * pipeline.micro_batches);
  }
  return true;
}

}  // namespace penstock::core
