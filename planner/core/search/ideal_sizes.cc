#include "planner/core/search/ideal_sizes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace penstock::core {
namespace {

constexpr int kSteps = 200;
// A step goes as far as would bring the makespan this much below the best one so far if it were linear. The
// aim gets nearer when so many steps in a row have come less than a part of the way.
constexpr double kFirstAim = 0.05;
constexpr double kNextAim = 0.6;
constexpr int kPatience = 10;
constexpr double kProgress = 0.03;
// A share changes by this factor at most in one step.
constexpr double kMostChange = 2;
// Shares at the limit push others up to it; after a few rounds what is left to divide is next to nothing.
constexpr int kLimitRounds = 4;

// The passes of strict 1F1B, and their longest path.
class StrictPipeline {
 public:
  StrictPipeline(absl::Span<const LinearStage> stages, int micro_batches);

  double Makespan(absl::Span<const double> shares);
  // By how much the last makespan grows with each share.
  const std::vector<double>& slopes() const { return slopes_; }
  // After Makespan.
  void FindSlopes();

 private:
  struct Pass {
    int32_t stage = 0;
    int32_t micro_batch = 0;
    bool backward = false;
    // What runs before it on its stage, and what makes its input; -1: nothing.
    int32_t before = -1;
    int32_t input = -1;
  };

  size_t At(int32_t micro_batch, int32_t stage, bool backward) const {
    return (static_cast<size_t>(micro_batch) * stages_.size() + stage) * 2 + (backward ? 1 : 0);
  }
  // The pass that makes the input of this one; none for the first stage's forward passes.
  size_t InputOf(const Pass& pass) const;
  const LinearTime& TimeOf(const Pass& pass) const {
    return pass.backward ? stages_[pass.stage].backward : stages_[pass.stage].forward;
  }
  // Of its input, which comes from another pass; nothing within a stage.
  const LinearTime& TransferOf(const Pass& pass) const {
    const int32_t from = passes_[pass.input].stage;
    return from == pass.stage ? no_transfer_ : stages_[std::min(from, pass.stage)].transfer;
  }

  absl::Span<const LinearStage> stages_;
  LinearTime no_transfer_;
  // Each after those that it waits for.
  std::vector<Pass> passes_;
  std::vector<double> end_ns_;
  // What each of them waited for last, and the pass that ends last.
  std::vector<int32_t> cause_;
  int32_t last_ = 0;
  std::vector<double> slopes_;
};

StrictPipeline::StrictPipeline(absl::Span<const LinearStage> stages, int micro_batches)
    : stages_(stages), slopes_(micro_batches, 0) {
  const auto stage_count = static_cast<int32_t>(stages.size());
  const size_t all = 2 * stages.size() * micro_batches;
  std::vector<int32_t> position(all, -1);
  std::vector<int32_t> forwards(stages.size(), 0);
  std::vector<int32_t> backwards(stages.size(), 0);
  std::vector<int32_t> last(stages.size(), -1);
  while (passes_.size() < all) {
    for (int32_t stage = 0; stage < stage_count; ++stage) {
      while (backwards[stage] < micro_batches) {
        Pass pass;
        pass.stage = stage;
        pass.backward =
            forwards[stage] == micro_batches || forwards[stage] - backwards[stage] == stage_count - stage;
        pass.micro_batch = pass.backward ? backwards[stage] : forwards[stage];
        if (pass.backward || stage > 0) {
          pass.input = position[InputOf(pass)];
          if (pass.input < 0) break;
        }
        pass.before = last[stage];
        last[stage] = static_cast<int32_t>(passes_.size());
        position[At(pass.micro_batch, stage, pass.backward)] = last[stage];
        ++(pass.backward ? backwards : forwards)[stage];
        passes_.push_back(pass);
      }
    }
  }
  end_ns_.resize(all);
  cause_.resize(all);
}

size_t StrictPipeline::InputOf(const Pass& pass) const {
  if (!pass.backward) return At(pass.micro_batch, pass.stage - 1, false);
  const bool turns = pass.stage + 1 == static_cast<int32_t>(stages_.size());
  return turns ? At(pass.micro_batch, pass.stage, false) : At(pass.micro_batch, pass.stage + 1, true);
}

double StrictPipeline::Makespan(absl::Span<const double> shares) {
  double makespan = 0;
  for (size_t i = 0; i < passes_.size(); ++i) {
    const Pass& pass = passes_[i];
    const double share = shares[pass.micro_batch];
    double start = pass.before < 0 ? 0 : end_ns_[pass.before];
    cause_[i] = pass.before;
    if (pass.input >= 0) {
      const double arrival = end_ns_[pass.input] + TransferOf(pass)(share);
      if (arrival > start) {
        start = arrival;
        cause_[i] = pass.input;
      }
    }
    end_ns_[i] = start + TimeOf(pass)(share);
    const double end = end_ns_[i] + stages_[pass.stage].end_ns;
    if (end > makespan) {
      makespan = end;
      last_ = static_cast<int32_t>(i);
    }
  }
  return makespan;
}

void StrictPipeline::FindSlopes() {
  std::fill(slopes_.begin(), slopes_.end(), 0);
  for (int32_t i = last_; i >= 0; i = cause_[i]) {
    const Pass& pass = passes_[i];
    double& slope = slopes_[pass.micro_batch];
    slope += TimeOf(pass).work;
    if (cause_[i] >= 0 && cause_[i] == pass.input) slope += TransferOf(pass).work;
  }
}

// Makes shares add up to 1 with none above `largest`.
void Normalize(double largest, std::vector<double>* shares) {
  const double sum = std::accumulate(shares->begin(), shares->end(), 0.0);
  for (double& share : *shares) share /= sum;
  if (largest >= 1) return;
  for (int round = 0; round < kLimitRounds; ++round) {
    double free = 0;
    double left = 1;
    for (const double share : *shares) {
      if (share < largest) {
        free += share;
      } else {
        left -= largest;
      }
    }
    if (free <= 0) return;
    for (double& share : *shares) share = share < largest ? share * left / free : largest;
  }
}

// Goes from where the makespan is `above` what it should be, if it were linear, to there.
void Step(const std::vector<double>& slopes, double above, double largest, std::vector<double>* shares) {
  double mean = 0;
  for (size_t i = 0; i < shares->size(); ++i) mean += (*shares)[i] * slopes[i];
  double decrease = 0;
  for (size_t i = 0; i < shares->size(); ++i) {
    decrease += (*shares)[i] * (slopes[i] - mean) * (slopes[i] - mean);
  }
  if (decrease <= 0) return;
  for (size_t i = 0; i < shares->size(); ++i) {
    const double factor = 1 - above / decrease * (slopes[i] - mean);
    (*shares)[i] *= std::clamp(factor, 1 / kMostChange, kMostChange);
  }
  Normalize(largest, shares);
}

IdealSizes BestOf(StrictPipeline* pipeline, const std::vector<std::vector<double>>& all, StopToken stop) {
  IdealSizes best = {all.front(), 0};
  bool known = false;
  for (const std::vector<double>& shares : all) {
    if (stop.stopped()) break;
    const double makespan = pipeline->Makespan(shares);
    if (!known || makespan < best.makespan_ns) best = {shares, makespan};
    known = true;
  }
  return best;
}

}  // namespace

IdealSizes BestSizes(absl::Span<const LinearStage> stages, const std::vector<std::vector<double>>& shares,
                     StopToken stop) {
  StrictPipeline pipeline(stages, static_cast<int>(shares.front().size()));
  return BestOf(&pipeline, shares, stop);
}

IdealSizes FindIdealSizes(absl::Span<const LinearStage> stages,
                          const std::vector<std::vector<double>>& starts, double largest, StopToken stop) {
  StrictPipeline pipeline(stages, static_cast<int>(starts.front().size()));
  std::vector<double> shares = BestOf(&pipeline, starts, stop).shares;
  Normalize(largest, &shares);
  double makespan = pipeline.Makespan(shares);
  IdealSizes best = {shares, makespan};
  double aim = kFirstAim;
  int waited = 0;
  for (int step = 0; step < kSteps && !stop.stopped(); ++step) {
    pipeline.FindSlopes();
    Step(pipeline.slopes(), makespan - best.makespan_ns * (1 - aim), largest, &shares);
    makespan = pipeline.Makespan(shares);
    waited = makespan < best.makespan_ns * (1 - aim * kProgress) ? 0 : waited + 1;
    if (makespan < best.makespan_ns) best = {shares, makespan};
    if (waited < kPatience) continue;
    waited = 0;
    aim *= kNextAim;
    shares = best.shares;
    makespan = pipeline.Makespan(shares);
  }
  return best;
}

}  // namespace penstock::core
