#include "planner/core/diagnose/diagnose.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "common/median/median.h"
#include "common/status/status_macros.h"
#include "planner/core/diagnose/communication.h"
#include "planner/core/diagnose/exchange_times.h"
#include "planner/core/diagnose/pass_times.h"
#include "planner/core/diagnose/step_graph.h"

namespace penstock::core {
namespace {

// A cause that gains less is not worth a line.
constexpr double kLeastShownGain = 0.01;
// So many candidates of a kind are replayed: those that lost most.
constexpr size_t kMostCandidates = 4;
// A pass has stalled that takes so many times what others of its work take, and is so many deviations away.
constexpr double kStalled = 1.5;
constexpr double kStalledDeviations = 6;
// Half of a normal distribution lies within 0.6745 deviations: spread work is told from noise by twice the
// noise.
constexpr double kWorkBeyondNoise = 2;

// What an activity takes instead; by step and activity.
using Mend = std::function<double(size_t step, size_t activity, double duration_ns)>;

class Diagnoser {
 public:
  explicit Diagnoser(const Timeline& timeline) : timeline_(timeline), passes_(timeline) {}

  absl::StatusOr<Diagnosis> Run() {
    const Communication communication(timeline_);
    for (const TimelineStep& step : timeline_.steps) {
      PENSTOCK_ASSIGN_OR_RETURN(StepGraph graph, GraphOfStep(timeline_, communication, step));
      graphs_.push_back(std::move(graph));
    }
    if (graphs_.empty()) return absl::InvalidArgumentError("a timeline without steps");
    if (passes_.known_work()) diagnosis_.foreseen_factor = passes_.foreseen_factor();
    exchanges_ = ExchangeTimes(timeline_, graphs_);
    Replay();
    FindUsual();
    FindIdeal();
    AddSlowRanks();
    AddUnequalWork();
    AddStageSplit();
    AddSlowExchanges(/*collectives=*/false);
    AddSlowExchanges(/*collectives=*/true);
    AddHostTime(/*at_the_beginning=*/true);
    AddHostTime(/*at_the_beginning=*/false);
    AddStalledPasses();
    std::stable_sort(diagnosis_.causes.begin(), diagnosis_.causes.end(),
                     [](const Cause& one, const Cause& other) { return one.gain > other.gain; });
    return std::move(diagnosis_);
  }

 private:
  const Operation& OperationOf(size_t step, size_t activity) const {
    return timeline_.steps[step].operations[graphs_[step].activities[activity].operation];
  }
  bool IsPass(size_t step, size_t activity) const {
    return !graphs_[step].activities[activity].host && IsPassKind(OperationOf(step, activity).kind);
  }
  template <typename Do>
  void ForActivities(Do visit) const {
    for (size_t step = 0; step < graphs_.size(); ++step) {
      for (size_t activity = 0; activity < graphs_[step].activities.size(); ++activity) visit(step, activity);
    }
  }

  void Replay() {
    double measured = 0, replayed = 0;
    for (const StepGraph& graph : graphs_) {
      const auto took = static_cast<double>(graph.measured_ns);
      const auto again = static_cast<double>(graph.graph.Finish(graph.durations_ns));
      measured += took;
      replayed += again;
      diagnosis_.replay_error +=
          std::abs(again / std::max(took, 1.0) - 1) / static_cast<double>(graphs_.size());
    }
    diagnosis_.measured_ns = measured / static_cast<double>(graphs_.size());
    replayed_ns_ = replayed / static_cast<double>(graphs_.size());
  }

  // The mean step with other times.
  double MeanWith(const Mend& mend) const {
    double sum = 0;
    std::vector<int64_t> durations;
    for (size_t step = 0; step < graphs_.size(); ++step) {
      durations = graphs_[step].durations_ns;
      for (size_t i = 0; i < durations.size(); ++i)
        durations[i] = std::llround(std::max(0.0, mend(step, i, static_cast<double>(durations[i]))));
      sum += static_cast<double>(graphs_[step].graph.Finish(durations));
    }
    return sum / static_cast<double>(graphs_.size());
  }
  double GainOf(const Mend& mend) const { return 1 - MeanWith(mend) / std::max(replayed_ns_, 1.0); }

  void Add(Cause cause, const Mend& mend, double least_gain = kLeastShownGain) {
    cause.gain = GainOf(mend);
    if (cause.gain >= least_gain) diagnosis_.causes.push_back(cause);
  }

  // Medians over all steps of hosts' times, by the operations around them.
  void FindUsual() {
    std::map<std::pair<int32_t, int32_t>, std::vector<double>> hosts;
    ForActivities([&](size_t step, size_t i) {
      const Activity& activity = graphs_[step].activities[i];
      if (!activity.host) return;
      hosts[{activity.name_before, OperationOf(step, i).name}].push_back(
          static_cast<double>(graphs_[step].durations_ns[i]));
    });
    for (auto& [key, values] : hosts) usual_host_ns_[key] = UpperMedian(values);
  }

  double UsualHostNs(size_t step, size_t activity) const {
    return usual_host_ns_.at(
        {graphs_[step].activities[activity].name_before, OperationOf(step, activity).name});
  }

  // `usual`: the mean and the median of what is called the same in the step.
  double IdealNs(size_t step, size_t activity, const std::pair<double, double>& usual) const {
    if (!IsPass(step, activity)) return usual.second;
    return passes_.known_work() ? passes_.MeanNs(OperationOf(step, activity)) : usual.first;
  }

  // In each step passes at what is usual for their work, or at the mean where nobody knows it, all else at
  // the median.
  void FindIdeal() {
    std::vector<std::vector<double>> ideal(graphs_.size());
    for (size_t step = 0; step < graphs_.size(); ++step) {
      std::map<std::tuple<bool, int32_t, int32_t>, std::vector<double>> alike;
      const auto key = [&](size_t i) {
        const Activity& activity = graphs_[step].activities[i];
        return std::tuple(activity.host, activity.host ? activity.name_before : 0, OperationOf(step, i).name);
      };
      for (size_t i = 0; i < graphs_[step].activities.size(); ++i)
        alike[key(i)].push_back(static_cast<double>(graphs_[step].durations_ns[i]));
      std::map<std::tuple<bool, int32_t, int32_t>, std::pair<double, double>> usual;
      for (auto& [name, values] : alike) {
        double sum = 0;
        for (const double value : values) sum += value;
        usual[name] = {sum / static_cast<double>(values.size()), UpperMedian(values)};
      }
      for (size_t i = 0; i < graphs_[step].activities.size(); ++i)
        ideal[step].push_back(IdealNs(step, i, usual[key(i)]));
    }
    diagnosis_.ideal_ns =
        MeanWith([&](size_t step, size_t activity, double) { return ideal[step][activity]; });
  }

  void AddSlowRanks() {
    for (const DiagnosedRank& slow : passes_.slow_ranks()) {
      Cause cause = {.kind = CauseKind::kSlowRank, .rank = slow.rank};
      cause.factor = slow.factor;
      cause.uncertainty = slow.uncertainty;
      cause.stage = timeline_.places[slow.rank].stage;
      Add(
          cause,
          [&](size_t step, size_t i, double duration) {
            return IsPass(step, i) && OperationOf(step, i).rank == slow.rank ? duration / slow.factor
                                                                             : duration;
          },
          /*least_gain=*/-1);
    }
  }

  void AddUnequalWork() {
    if (passes_.known_work() || passes_.work_spread() < kWorkBeyondNoise * passes_.noise()) return;
    Cause cause = {.kind = CauseKind::kUnequalWork};
    cause.factor = std::exp(passes_.work_spread());
    Add(cause, [&](size_t step, size_t i, double duration) {
      return IsPass(step, i) ? duration / (passes_.WorkOf(step, OperationOf(step, i)) * MeanWork())
                             : duration;
    });
  }

  // Work is relative to the median, and what is spread evenly is the mean.
  double MeanWork() {
    if (mean_work_ > 0) return 1 / mean_work_;
    double sum = 0;
    int64_t passes = 0;
    ForActivities([&](size_t step, size_t i) {
      if (!IsPass(step, i)) return;
      sum += passes_.WorkOf(step, OperationOf(step, i));
      ++passes;
    });
    mean_work_ = passes > 0 ? sum / static_cast<double>(passes) : 1;
    return 1 / mean_work_;
  }

  void AddStageSplit() {
    if (passes_.known_work()) return;
    std::map<int32_t, std::pair<double, double>> stages;
    ForActivities([&](size_t step, size_t i) {
      if (!IsPass(step, i)) return;
      const Operation& pass = OperationOf(step, i);
      auto& [own, mean] = stages[timeline_.places[pass.rank].stage];
      own += passes_.UsualNs(pass);
      mean += passes_.MeanOfStagesNs(pass.kind);
    });
    Cause cause = {.kind = CauseKind::kStageSplit};
    for (const auto& [stage, times] : stages) {
      const double factor = times.first / times.second;
      if (factor <= cause.factor) continue;
      cause.factor = factor;
      cause.stage = stage;
    }
    Add(cause, [&](size_t step, size_t i, double duration) {
      if (!IsPass(step, i)) return duration;
      const Operation& pass = OperationOf(step, i);
      return duration * passes_.MeanOfStagesNs(pass.kind) / passes_.UsualNs(pass);
    });
  }

  // Links, or groups of ranks.
  void AddSlowExchanges(bool collectives) {
    const auto exchange_of = [&](size_t step, size_t i) {
      const Exchange* const exchange = exchanges_.Of(step, i);
      return exchange != nullptr && exchange->collective == collectives ? exchange : nullptr;
    };
    // By ranks: its time beyond that of others of its names, and how many times as long it takes.
    std::map<std::vector<int32_t>, std::pair<double, double>> slow;
    ForActivities([&](size_t step, size_t i) {
      const Exchange* const exchange = exchange_of(step, i);
      if (exchange == nullptr || !exchange->clearly_slow()) return;
      auto& [lost, most] = slow[exchange->ranks];
      lost += static_cast<double>(graphs_[step].durations_ns[i]) * (1 - 1 / exchange->factor);
      most = std::max(most, exchange->factor);
    });
    for (const auto& candidate : MostOf(slow)) {
      const std::vector<int32_t>& ranks = candidate.first;
      Cause cause = collectives
                        ? Cause{.kind = CauseKind::kSlowRing, .ring = ranks}
                        : Cause{.kind = CauseKind::kSlowLink, .rank = ranks.front(), .peer = ranks.back()};
      cause.factor = slow[ranks].second;
      Add(cause, [&](size_t step, size_t i, double duration) {
        const Exchange* const exchange = exchange_of(step, i);
        return exchange != nullptr && exchange->ranks == ranks ? duration / exchange->factor : duration;
      });
    }
  }

  // The keys with the most lost, largest first.
  template <typename Key>
  static std::vector<std::pair<Key, double>> MostOf(const std::map<Key, std::pair<double, double>>& lost) {
    std::vector<std::pair<Key, double>> most;
    for (const auto& [key, value] : lost) most.emplace_back(key, value.first);
    std::stable_sort(most.begin(), most.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    if (most.size() > kMostCandidates) most.resize(kMostCandidates);
    return most;
  }

  void AddHostTime(bool at_the_beginning) {
    const auto is_it = [&](size_t step, size_t i) {
      const Activity& activity = graphs_[step].activities[i];
      return activity.host && (activity.name_before < 0) == at_the_beginning;
    };
    std::map<int32_t, std::pair<double, double>> lost;
    ForActivities([&](size_t step, size_t i) {
      if (!is_it(step, i)) return;
      lost[OperationOf(step, i).rank].first +=
          std::max(0.0, static_cast<double>(graphs_[step].durations_ns[i]) - UsualHostNs(step, i));
    });
    for (const auto& candidate : MostOf(lost)) {
      const int32_t rank = candidate.first;
      Cause cause = {.kind = at_the_beginning ? CauseKind::kLateStart : CauseKind::kHostStalls, .rank = rank};
      Add(cause, [&](size_t step, size_t i, double duration) {
        return is_it(step, i) && OperationOf(step, i).rank == rank ? std::min(duration, UsualHostNs(step, i))
                                                                   : duration;
      });
    }
  }

  // What a pass would take without its rank's stalls.
  double ExpectedNs(size_t step, const Operation& pass) const {
    return passes_.UsualNs(pass) * passes_.WorkOf(step, pass) * passes_.FactorOf(pass.rank);
  }
  bool HasStalled(size_t step, size_t i) const {
    if (!IsPass(step, i)) return false;
    const double factor =
        static_cast<double>(graphs_[step].durations_ns[i]) / ExpectedNs(step, OperationOf(step, i));
    return factor > kStalled && std::log(factor) > kStalledDeviations * passes_.noise();
  }

  void AddStalledPasses() {
    std::map<int32_t, std::pair<double, double>> lost;
    ForActivities([&](size_t step, size_t i) {
      if (!HasStalled(step, i)) return;
      const Operation& pass = OperationOf(step, i);
      lost[pass.rank].first += static_cast<double>(graphs_[step].durations_ns[i]) - ExpectedNs(step, pass);
      lost[pass.rank].second += 1;
    });
    for (const auto& candidate : MostOf(lost)) {
      const int32_t rank = candidate.first;
      Cause cause = {.kind = CauseKind::kStalledPasses, .rank = rank};
      cause.factor = lost[rank].second / static_cast<double>(graphs_.size());
      Add(cause, [&](size_t step, size_t i, double duration) {
        return HasStalled(step, i) && OperationOf(step, i).rank == rank
                   ? ExpectedNs(step, OperationOf(step, i))
                   : duration;
      });
    }
  }

  const Timeline& timeline_;
  const PassTimes passes_;
  std::vector<StepGraph> graphs_;
  double replayed_ns_ = 0;
  double mean_work_ = 0;
  std::map<std::pair<int32_t, int32_t>, double> usual_host_ns_;
  ExchangeTimes exchanges_;
  Diagnosis diagnosis_;
};

}  // namespace

absl::StatusOr<Diagnosis> Diagnose(const Timeline& timeline) { return Diagnoser(timeline).Run(); }

}  // namespace penstock::core
