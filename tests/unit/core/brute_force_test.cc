// The brute force itself: against schedules worked out by hand, and against a search without any pruning.
#include "tests/unit/core/brute_force.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/core/brute_force_schedule.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

constexpr int64_t kForever = int64_t{1} << 55;

// Tries every order of passes, one decision at a time, and prunes nothing.
class Naive {
 public:
  explicit Naive(const SmallPipeline& pipeline)
      : pipeline_(pipeline),
        free_(pipeline.ranks, 0),
        held_(pipeline.ranks, 0),
        phase_(pipeline.passes.size(), 0),
        choice_(pipeline.passes.size(), 0),
        forward_(pipeline.passes.size(), 0),
        input_(pipeline.passes.size(), 0),
        link_(pipeline.ranks, 0),
        activation_(pipeline.passes.size(), -1),
        gradient_(pipeline.passes.size(), -1) {}

  // kForever when nothing fits.
  int64_t Best() {
    Visit(0);
    return best_;
  }

 private:
  // Runs a pass, goes on, and takes it back.
  void Run(int i, int phase, int choice, int64_t ready, int64_t duration, int64_t kept, int64_t* end_of,
           int64_t end) {
    const int stage = i % pipeline_.stages;
    const int rank = pipeline_.rank_of_stage[stage];
    const auto before = std::tuple(free_[rank], held_[rank], phase_[i], choice_[i]);
    free_[rank] = std::max(free_[rank], ready) + duration;
    held_[rank] += kept;
    phase_[i] = phase;
    choice_[i] = choice;
    if (end_of != nullptr) *end_of = free_[rank];
    Visit(phase == 3 ? std::max(end, free_[rank] + pipeline_.reduce_ns[stage]) : end);
    std::tie(free_[rank], held_[rank], phase_[i], choice_[i]) = before;
  }

  // A transfer over the boundary above pass i.
  void Send(int i, int64_t ready, int64_t* arrival, int64_t end) {
    int64_t& link = link_[pipeline_.rank_of_stage[i % pipeline_.stages]];
    const int64_t before = link;
    const int64_t transfer = pipeline_.passes[i].transfer_ns;
    *arrival = transfer == 0 ? ready : std::max(link, ready) + transfer;
    if (transfer > 0) link = *arrival;
    Visit(end);
    link = before;
    *arrival = -1;
  }

  void Visit(int64_t end) {
    bool done = true;
    for (size_t i = 0; i < phase_.size(); ++i) {
      if (phase_[i] != 3) done = false;
      Extend(static_cast<int>(i), end);
    }
    if (done) best_ = std::min(best_, end);
  }

  void Extend(int i, int64_t end) {
    const int stage = i % pipeline_.stages;
    const SmallPass& pass = pipeline_.passes[i];
    const int rank = pipeline_.rank_of_stage[stage];
    const int64_t room = pipeline_.available_bytes[rank] - held_[rank];
    const bool last = stage + 1 == pipeline_.stages;
    if (!last && phase_[i] > 0 && activation_[i] < 0) {
      Send(i, forward_[i], &activation_[i], end);
      if (pass.transfer_ns == 0) return;
    }
    if (!last && phase_[i + 1] > 1 && gradient_[i] < 0) {
      Send(i, input_[i + 1], &gradient_[i], end);
      if (pass.transfer_ns == 0) return;
    }
    if (phase_[i] == 0 && (stage == 0 || activation_[i - 1] >= 0)) {
      const int64_t ready = stage == 0 ? 0 : activation_[i - 1];
      for (size_t c = 0; c < pass.choices.size(); ++c) {
        const int64_t kept = pass.choices[c].kept_bytes;
        if (kept + pass.forward_bytes > room) continue;
        Run(i, 1, static_cast<int>(c), ready, pass.forward_ns, kept, &forward_[i], end);
      }
    } else if (phase_[i] == 1 && (last || gradient_[i] >= 0)) {
      if (pass.backward_bytes > room) return;
      const int64_t ready = last ? forward_[i] : gradient_[i];
      const PassChoice& choice = pass.choices[choice_[i]];
      Run(i, 3, choice_[i], ready, choice.backward_ns, -choice.kept_bytes, &input_[i], end);
      const int64_t more = pass.put_aside_bytes - choice.kept_bytes;
      if (!pipeline_.split || pass.backward_bytes + std::max<int64_t>(0, more) > room) return;
      Run(i, 2, choice_[i], ready, choice.backward_ns - pass.weight_ns, more, &input_[i], end);
    } else if (phase_[i] == 2) {
      Run(i, 3, choice_[i], input_[i], pass.weight_ns, -pass.put_aside_bytes, nullptr, end);
    }
  }

  const SmallPipeline& pipeline_;
  std::vector<int64_t> free_;
  std::vector<int64_t> held_;
  std::vector<int> phase_;
  std::vector<int> choice_;
  std::vector<int64_t> forward_;
  std::vector<int64_t> input_;
  std::vector<int64_t> link_;
  // -1 before it is sent.
  std::vector<int64_t> activation_;
  std::vector<int64_t> gradient_;
  int64_t best_ = kForever;
};

SmallPass RandomPass(bool sends, Random* random) {
  SmallPass pass;
  pass.forward_ns = random->Range(1, 12);
  pass.weight_ns = random->Range(0, 12);
  pass.choices.push_back({pass.weight_ns + random->Range(0, 12), random->Range(4, 10)});
  if (random->Chance(60)) pass.choices.push_back({pass.choices[0].backward_ns + random->Range(1, 5), 2});
  pass.forward_bytes = random->Range(0, 2);
  pass.backward_bytes = random->Range(0, 4);
  pass.put_aside_bytes = pass.choices[0].kept_bytes;
  if (sends) pass.transfer_ns = random->Range(0, 9);
  return pass;
}

SmallPipeline RandomPipeline(uint64_t seed) {
  Random random(seed);
  SmallPipeline pipeline;
  static const std::vector<std::vector<int32_t>> kPlacements = {{0}, {0, 1}, {0, 0}, {0, 1, 0}, {0, 1, 2}};
  const uint32_t placement = random.Range(0, 4);
  pipeline.rank_of_stage = kPlacements[placement];
  pipeline.stages = static_cast<int>(pipeline.rank_of_stage.size());
  pipeline.split = random.Chance(60);
  // Three stages of two micro-batches are too many orders, and two stages with split passes and transfers.
  pipeline.micro_batches = static_cast<int>(random.Range(1, pipeline.stages == 3 ? 1 : 2));
  const bool too_many = pipeline.split && pipeline.micro_batches == 2;
  pipeline.ranks = 1 + *std::max_element(pipeline.rank_of_stage.begin(), pipeline.rank_of_stage.end());
  for (int m = 0; m < pipeline.micro_batches; ++m) {
    for (int s = 0; s < pipeline.stages; ++s) {
      const bool sends =
          s + 1 < pipeline.stages && pipeline.rank_of_stage[s] != pipeline.rank_of_stage[s + 1];
      pipeline.passes.push_back(RandomPass(sends && !too_many, &random));
    }
  }
  const int64_t bytes = random.Chance(30) ? 1000 : random.Range(6, 40);
  pipeline.available_bytes.assign(pipeline.ranks, bytes);
  for (int s = 0; s < pipeline.stages; ++s) pipeline.reduce_ns.push_back(random.Range(0, 9));
  return pipeline;
}

TEST(BruteForceTest, PruningLosesNoSchedule) {
  int possible = 0;
  int waited = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const SmallPipeline pipeline = RandomPipeline(seed);
    const int64_t naive = Naive(pipeline).Best();
    int64_t nodes = 1000000;
    const SmallSchedule best = BestSchedule(pipeline, kForever, /*any=*/false, &nodes);
    ASSERT_TRUE(best.complete) << seed;
    ASSERT_EQ(best.found, naive < kForever) << seed;
    if (!best.found) continue;
    ++possible;
    EXPECT_EQ(best.end_ns, naive) << "seed " << seed << "\n" << best.text;
    EXPECT_LE(LeastEnd(pipeline), naive) << seed;
    EXPECT_FALSE(BestSchedule(pipeline, naive, false, &nodes).found) << seed;
    EXPECT_TRUE(BestSchedule(pipeline, naive + 1, false, &nodes).found) << seed;
    if (pipeline.available_bytes[0] < 1000) ++waited;
  }
  EXPECT_GT(possible, 60);
  EXPECT_GT(waited, 20);
}

SmallPipeline TwoStages(int micro_batches, bool split) {
  SmallPipeline pipeline;
  pipeline.stages = 2;
  pipeline.ranks = 2;
  pipeline.rank_of_stage = {0, 1};
  pipeline.micro_batches = micro_batches;
  SmallPass pass;
  pass.forward_ns = 10;
  pass.weight_ns = 10;
  pass.choices = {{20, 1}};
  pass.put_aside_bytes = 1;
  pass.transfer_ns = 1;
  for (int i = 0; i < micro_batches * 2; ++i) pipeline.passes.push_back(pass);
  pipeline.available_bytes = {100, 100};
  pipeline.reduce_ns = {0, 0};
  pipeline.split = split;
  return pipeline;
}

int64_t BestEnd(const SmallPipeline& pipeline) {
  int64_t nodes = 100000;
  return BestSchedule(pipeline, kForever, false, &nodes).end_ns;
}

TEST(BruteForceTest, FindsWhatCanBeWorkedOutByHand) {
  // Up 10 + 1 + 10, back 20 + 1 + 20; split: the second stage's weight pass is off the way.
  EXPECT_EQ(BestEnd(TwoStages(1, false)), 62);
  EXPECT_EQ(BestEnd(TwoStages(1, true)), 52);
  // The second rank works without a break from 11 on for 60, then the gradient and its 20.
  EXPECT_EQ(BestEnd(TwoStages(2, false)), 92);
  EXPECT_EQ(OneForwardOneBackwardEnd(TwoStages(2, false), {0, 1}), 92);
  // Its last input gradient ends at 51 at the earliest: 1 + 10 + 10 more.
  EXPECT_EQ(BestEnd(TwoStages(2, true)), 72);
  // With room for one micro-batch only, the second enters when the first has left.
  SmallPipeline narrow = TwoStages(2, false);
  narrow.available_bytes = {1, 1};
  EXPECT_EQ(BestEnd(narrow), 124);
}

}  // namespace
}  // namespace penstock::core
