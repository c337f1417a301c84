#include "planner/core/stages/stage_choice.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "planner/core/schedule/pass_table.h"
#include "planner/core/stages/layout_judge.h"

namespace penstock::core {
namespace {

// Layouts that are planned for each placement at most.
constexpr size_t kMostProbes = 40;
// A layout whose busiest rank has so much more than that of the best one (in percent) is not planned.
constexpr int64_t kHopelessPercent = 112;
// What a placement with several stages a rank must gain, in percent.
constexpr int64_t kInterleavingGain = 1;
// Of each placement, the layouts that race.
constexpr size_t kRacers = 5;
// The race goes on with so many of all.
constexpr size_t kKept[] = {8, 6, 4, 1};

std::vector<int32_t> OneStageARank(int ranks) {
  std::vector<int32_t> placement(ranks);
  std::iota(placement.begin(), placement.end(), 0);
  return placement;
}

std::vector<int32_t> Loop(int ranks) {
  std::vector<int32_t> placement = OneStageARank(ranks);
  for (int rank = 0; rank < ranks; ++rank) placement.push_back(rank);
  return placement;
}

std::vector<int32_t> V(int ranks) {
  std::vector<int32_t> placement = OneStageARank(ranks);
  for (int rank = ranks - 1; rank >= 0; --rank) placement.push_back(rank);
  return placement;
}

// The placements that the job's schedule allows, the simplest first.
std::vector<std::vector<int32_t>> Placements(const Job& job) {
  std::vector<std::vector<int32_t>> placements;
  if (job.schedule != ScheduleFamily::kInterleaved)
    placements.push_back(OneStageARank(job.topology.shape().positions));
  size_t layers = 0;
  for (const Stage& stage : job.topology.shape().stages) layers += stage.layers();
  const bool may_interleave =
      job.schedule == ScheduleFamily::kInterleaved || job.schedule == ScheduleFamily::kAuto;
  if (may_interleave && job.topology.shape().positions > 1 &&
      layers >= 2 * static_cast<size_t>(job.topology.shape().positions)) {
    placements.push_back(V(job.topology.shape().positions));
    placements.push_back(Loop(job.topology.shape().positions));
  }
  if (placements.empty()) placements.push_back(OneStageARank(job.topology.shape().positions));
  return placements;
}

// A layer goes from every stage of the first half to the other stage of its rank, or the other way round.
bool ShiftHalves(bool to_second, StageLayout* layout) {
  const size_t half = layout->layers.size() / 2;
  const std::vector<int32_t>& ranks = layout->position_of_stage;
  for (size_t stage = 0; stage < half; ++stage) {
    const auto second =
        std::find(ranks.begin() + static_cast<std::ptrdiff_t>(half), ranks.end(), ranks[stage]);
    const auto other = static_cast<size_t>(second - ranks.begin());
    if (!(to_second ? MoveLayer(stage, other, layout) : MoveLayer(other, stage, layout))) return false;
  }
  return true;
}

// Where to begin: balanced by time; and even, with one half a layer larger than the other, each of them also
// with a layer that the last stage, which has the head, leaves to the first.
std::vector<StageLayout> FirstLayouts(const LayoutJudge& judge, const std::vector<int32_t>& placement,
                                      int ranks) {
  std::vector<StageLayout> even = {judge.Even(placement)};
  if (placement.size() == 2 * static_cast<size_t>(ranks)) {
    for (const bool to_second : {false, true}) {
      StageLayout layout = even.front();
      if (ShiftHalves(to_second, &layout)) even.push_back(std::move(layout));
    }
  }
  std::vector<StageLayout> layouts = {judge.Balanced(placement)};
  for (StageLayout& layout : even) {
    layouts.push_back(layout);
    if (MoveLayer(placement.size() - 1, 0, &layout)) layouts.push_back(std::move(layout));
  }
  return layouts;
}

// Improves the best of the first layouts step by step; returns the best of all that were planned, best first.
std::vector<StageLayout> Probe(const LayoutJudge& judge, const std::vector<int32_t>& placement, int ranks) {
  struct Probed {
    int64_t time = 0;
    StageLayout layout;
  };
  std::vector<Probed> probed;
  const auto is_known = [&](const StageLayout& layout) {
    return std::any_of(probed.begin(), probed.end(),
                       [&](const Probed& one) { return one.layout.layers == layout.layers; });
  };
  const auto plan = [&](StageLayout layout) {
    probed.push_back({judge.Makespan(layout, 0, Effort::kFast), std::move(layout)});
    return probed.back().time;
  };
  Probed best{std::numeric_limits<int64_t>::max(), {}};
  for (const StageLayout& first : FirstLayouts(judge, placement, ranks)) {
    if (judge.stop().stopped()) return {};
    if (!is_known(first) && plan(first) < best.time) best = probed.back();
  }
  const int64_t balanced = judge.BusiestRank(best.layout);
  const size_t stages = placement.size();
  size_t since_better = 0;
  // Every pair of stages in turn, going on after a change.
  for (size_t pair = 0; probed.size() < kMostProbes && since_better < stages * stages;
       ++pair, ++since_better) {
    if (judge.stop().stopped()) return {};
    const size_t from = pair % stages;
    const size_t to = (from + 1 + pair / stages) % stages;
    StageLayout changed = best.layout;
    if (from == to || !MoveLayer(from, to, &changed)) continue;
    if (is_known(changed) || judge.BusiestRank(changed) * 100 > balanced * kHopelessPercent) continue;
    if (plan(std::move(changed)) >= best.time) continue;
    best = probed.back();
    since_better = 0;
  }
  std::stable_sort(probed.begin(), probed.end(),
                   [](const Probed& a, const Probed& b) { return a.time < b.time; });
  std::vector<StageLayout> layouts;
  for (size_t i = 0; i < std::min(kRacers, probed.size()); ++i)
    layouts.push_back(std::move(probed[i].layout));
  return layouts;
}

// A layout in the race.
struct Racer {
  StageLayout layout;
  // What counts of its time: more where several stages a rank must gain something.
  int64_t percent = 100;
  // Batches so far that it cannot run, and the sum over the others.
  int infeasible = 0;
  int64_t score = 0;
};

// Plans batches [begin, end) with every layout, and keeps the best, the first of equals.
void RunRound(const LayoutJudge& judge, size_t begin, size_t end, size_t kept, const RunTasks& run_tasks,
              std::vector<Racer>* racers) {
  const size_t batches = end - begin;
  std::vector<int64_t> makespans(racers->size() * batches);
  run_tasks(static_cast<int>(makespans.size()), [&](int task) {
    if (judge.stop().stopped()) return;
    makespans[task] =
        judge.Makespan((*racers)[task / batches].layout, begin + task % batches, Effort::kNormal);
  });
  for (size_t i = 0; i < makespans.size(); ++i) {
    Racer& racer = (*racers)[i / batches];
    if (makespans[i] >= kInfeasibleNs) {
      ++racer.infeasible;
    } else {
      racer.score += makespans[i] / 100 * racer.percent;
    }
  }
  std::stable_sort(racers->begin(), racers->end(), [](const Racer& a, const Racer& b) {
    return std::tie(a.infeasible, a.score) < std::tie(b.infeasible, b.score);
  });
  if (racers->size() > kept)
    racers->erase(racers->begin() + static_cast<std::ptrdiff_t>(kept), racers->end());
}

// Each round plans as many batches as all before it.
StageLayout Race(const LayoutJudge& judge, std::vector<Racer> racers, const RunTasks& run_tasks) {
  size_t begin = 0;
  size_t end = 1;
  for (const size_t kept : kKept) {
    if (judge.stop().stopped()) break;
    RunRound(judge, begin, end, kept, run_tasks, &racers);
    if (end == judge.batches()) break;
    begin = end;
    end = std::min(2 * end, judge.batches());
  }
  return racers.front().layout;
}

}  // namespace

Job ChooseStages(const Profile& profile, const Job& job, bool probe, const RunTasks& run_tasks,
                 StopToken stop) {
  const LayoutJudge judge(profile, job, stop);
  const std::vector<std::vector<int32_t>> placements = Placements(job);
  // Without lengths there is nothing to judge a layout by but the balance of its ranks.
  if (!probe || job.topology.shape().positions == 1 || job.typical_samples.empty()) {
    return WithStages(job, judge.Balanced(placements.front()));
  }
  std::vector<std::vector<StageLayout>> layouts(placements.size());
  run_tasks(static_cast<int>(placements.size()), [&](int index) {
    layouts[index] = Probe(judge, placements[index], job.topology.shape().positions);
  });
  if (stop.stopped()) return job;
  std::vector<Racer> racers;
  for (std::vector<StageLayout>& of_placement : layouts) {
    for (StageLayout& layout : of_placement) {
      const bool interleaved = layout.layers.size() > static_cast<size_t>(job.topology.shape().positions);
      racers.push_back({std::move(layout), interleaved ? 100 + kInterleavingGain : 100});
    }
  }
  return WithStages(job, Race(judge, std::move(racers), run_tasks));
}

}  // namespace penstock::core
