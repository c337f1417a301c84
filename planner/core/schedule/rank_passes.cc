#include "planner/core/schedule/rank_passes.h"

#include <vector>

namespace penstock::core {
namespace {

// Passes that a stage has run.
struct Progress {
  int32_t forwards = 0;
  int32_t backwards = 0;
};

class Sweeper {
 public:
  Sweeper(const PipelineCosts& costs, const PassOrder& order)
      : costs_(costs), order_(order), progress_(costs.stages) {
    run_.reserve(2 * static_cast<size_t>(costs.stages) * costs.micro_batches);
  }

  // All passes, each behind those that it needs.
  const std::vector<Pass>& Run() {
    while (progress_[0].backwards < costs_.micro_batches) {
      for (int stage = 0; stage < costs_.stages; ++stage) Advance(stage);
      for (int stage = costs_.stages - 2; stage >= 0; --stage) Advance(stage);
    }
    return run_;
  }

 private:
  // Runs the passes of a stage that are ready.
  void Advance(int stage) {
    Progress& progress = progress_[stage];
    const bool last = stage + 1 == costs_.stages;
    const int32_t activations = stage == 0 ? costs_.micro_batches : progress_[stage - 1].forwards;
    const int32_t* forwards_before =
        &order_.forwards_before[static_cast<size_t>(stage) * costs_.micro_batches];
    while (progress.backwards < costs_.micro_batches) {
      const bool forward = progress.forwards < forwards_before[progress.backwards];
      const int32_t gradients = last ? progress.forwards : progress_[stage + 1].backwards;
      if (forward && progress.forwards == activations) return;
      if (!forward && progress.backwards == gradients) return;
      int32_t& count = forward ? progress.forwards : progress.backwards;
      run_.push_back({forward ? PassKind::kForward : PassKind::kBackward, stage, count});
      ++count;
    }
  }

  const PipelineCosts& costs_;
  const PassOrder& order_;
  std::vector<Progress> progress_;
  std::vector<Pass> run_;
};

}  // namespace

void MakeRankPasses(const PipelineCosts& costs, const PassOrder& order, RankPasses* passes) {
  Sweeper sweeper(costs, order);
  const std::vector<Pass>& run = sweeper.Run();
  passes->rank_begin.assign(1, 0);
  passes->passes.clear();
  passes->passes.reserve(run.size());
  for (int rank = 0; rank < costs.ranks; ++rank) {
    for (const Pass& pass : run) {
      if (costs.rank_of_stage[pass.stage] == rank) passes->passes.push_back(pass);
    }
    passes->rank_begin.push_back(static_cast<int32_t>(passes->passes.size()));
  }
}

}  // namespace penstock::core
