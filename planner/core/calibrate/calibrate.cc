#include "planner/core/calibrate/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/median/median.h"
#include "common/status/status_macros.h"
#include "planner/core/calibrate/bounded_step.h"
#include "planner/core/calibrate/durations.h"
#include "planner/core/calibrate/find_slow_links.h"
#include "planner/core/calibrate/find_slow_ranks.h"
#include "planner/core/calibrate/fit_costs.h"
#include "planner/core/calibrate/foretold_pass.h"
#include "planner/core/calibrate/link_factors.h"
#include "planner/core/calibrate/measured_expert_load.h"
#include "planner/core/calibrate/measured_noise.h"
#include "planner/core/calibrate/measured_reshards.h"
#include "planner/core/calibrate/recent_level.h"
#include "planner/core/calibrate/revise_profile.h"
#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/replay/program_set_of_plan.h"
#include "planner/core/replay/times_under_noise.h"
#include "planner/core/simulate/simulator.h"

namespace penstock::core {
namespace {

// Revised costs have to be better by so much: each revision makes plans that differ for no other reason.
constexpr double kLeastGain = 0.005;
// Of finding slow ranks and fitting without their slowness, in turn: at most so often, and until they change
// no more.
constexpr int kSlowRankRounds = 8;
constexpr double kSettled = 0.005;
// Ranks that have become so much slower or faster are worth other plans, though those in effect may foretell
// the iterations: who waits for a rank that is said to be slow foretells it well. If only the fit is not so
// much worse.
constexpr double kSpeedChange = 0.05;
constexpr double kMostLoss = 0.02;
// So are links that have become so much slower or faster, beside others of their kind.
constexpr double kLinkChange = 0.2;
// A router that has become so much more or less even is worth other plans likewise: of its rows memory is
// planned, too.
constexpr double kLoadChange = 0.1;
// More than that is no waiting between passes.
constexpr double kMostMissing = 3;
// Iterations differ by as much though costs and noise are right.
constexpr double kOfChance = 0.02;
// Of each iteration: what noise makes of several has less error than of one.
constexpr int kNoiseDraws = 8;

// The plans of iterations, run again with other costs.
class Replays {
 public:
  static absl::StatusOr<Replays> Of(absl::Span<const ObservedIteration> iterations, const Job& job) {
    Replays replays;
    for (const ObservedIteration& iteration : iterations) {
      Replay& replay = replays.replays_.emplace_back();
      replay.plan = iteration.plan;
      PENSTOCK_ASSIGN_OR_RETURN(replay.batch, BatchFromProto(*iteration.batch, job));
      PENSTOCK_ASSIGN_OR_RETURN(replay.programs, ProgramSetOfPlan(*iteration.plan));
      replay.measured_ns = static_cast<double>(MeasuredMakespanNs(iteration));
    }
    return replays;
  }

  // Of each iteration, what was measured divided by what the costs foretell.
  absl::StatusOr<std::vector<double>> Ratios(const CostModel& costs, StopToken stop) {
    std::vector<double> ratios;
    for (Replay& replay : replays_) {
      PENSTOCK_RETURN_IF_ERROR(SetDurations(*replay.plan, replay.batch, costs, &replay.programs));
      PENSTOCK_ASSIGN_OR_RETURN(const double expected_ns,
                                ExpectedNs(replay, costs.profile().pass_noise, stop));
      ratios.push_back(replay.measured_ns / std::max(expected_ns, 1.0));
    }
    return ratios;
  }

 private:
  struct Replay {
    const v1::Plan* plan = nullptr;
    Batch batch;
    ProgramSet programs;
    double measured_ns = 0;
  };

  absl::StatusOr<double> ExpectedNs(const Replay& replay, double pass_noise, StopToken stop) {
    if (pass_noise > 0) {
      PENSTOCK_ASSIGN_OR_RETURN(const TimesUnderNoise times,
                                RunUnderNoise(replay.programs, ReplicasOf(*replay.plan), pass_noise,
                                              replay.plan->iteration(), kNoiseDraws, stop));
      return times.mean_ns;
    }
    PENSTOCK_RETURN_IF_ERROR(simulator_.Run(replay.programs, stop));
    return static_cast<double>(simulator_.makespan_ns());
  }

  std::vector<Replay> replays_;
  Simulator simulator_;
};

// Mean of |foretold - measured| / measured of passes.
double MeanError(const std::vector<double>& measured_over_foretold) {
  double sum = 0;
  for (const double ratio : measured_over_foretold) sum += std::abs(1 / ratio - 1);
  return sum / static_cast<double>(measured_over_foretold.size());
}

// All measurements of the iterations.
absl::StatusOr<Measurements> MeasuredIn(absl::Span<const ObservedIteration> iterations,
                                        const CostModel& costs, const CostModel& in_effect, const Job& job) {
  Measurements all;
  int number = 0;
  for (const ObservedIteration& iteration : iterations) {
    PENSTOCK_ASSIGN_OR_RETURN(Measurements one, MeasurementsOf(iteration, costs, in_effect, job));
    for (MeasuredPass& pass : one.passes) pass.iteration = number;
    ++number;
    all.passes.insert(all.passes.end(), one.passes.begin(), one.passes.end());
    all.rank_passes.insert(all.rank_passes.end(), one.rank_passes.begin(), one.rank_passes.end());
    all.steps.insert(all.steps.end(), one.steps.begin(), one.steps.end());
    all.transfers.insert(all.transfers.end(), one.transfers.begin(), one.transfers.end());
    all.rings.insert(all.rings.end(), one.rings.begin(), one.rings.end());
    all.reshards.insert(all.reshards.end(), one.reshards.begin(), one.reshards.end());
  }
  return all;
}

// Of all passes of an iteration together, the median iteration: to fits single passes that are far off count
// less, but whoever waits for a rank waits for those, too.
double MeasuredOverForetold(const CostModel& costs, absl::Span<const MeasuredPass> passes) {
  struct Sums {
    double measured_ns = 0;
    double foretold_ns = 0;
  };
  std::map<int, Sums> of_iterations;
  for (const MeasuredPass& pass : passes) {
    const double foretold_ns = ForetoldAloneNs(costs, pass);
    if (foretold_ns <= 0 || pass.kind == MeasuredKind::kBackwardWeight) continue;
    Sums& sums = of_iterations[pass.iteration];
    sums.measured_ns += pass.duration_ns;
    sums.foretold_ns += foretold_ns;
  }
  std::vector<double> ratios;
  for (const auto& [iteration, sums] : of_iterations) ratios.push_back(sums.measured_ns / sums.foretold_ns);
  return ratios.empty() ? 1 : LowerMedian(ratios);
}

// Backward passes in two parts are there whole, too.
double HostShare(absl::Span<const MeasuredPass> passes) {
  double host_ns = 0, all_ns = 0;
  for (const MeasuredPass& pass : passes) {
    if (pass.kind == MeasuredKind::kBackwardWeight) continue;
    host_ns += pass.host_ns;
    all_ns += pass.duration_ns;
  }
  return all_ns > 0 ? host_ns / all_ns : 0;
}

// Costs are fitted to what groups took, which is what plans are made of. Who is slow is told of what ranks
// computed, by costs of their own: those of groups have what their exchanges took beyond what is planned.
class PassFit {
 public:
  // `costs`: what `base` says. All must outlive this.
  PassFit(const CostModel& costs, const v1::CostProfile& base, const Job& job)
      : costs_(costs), base_(base), job_(job) {}

  // A fit to all ranks lies between the slow and the others: passes are fitted again as they would have been
  // on ranks that are not slow.
  absl::StatusOr<CostFactors> Run(const v1::CostProfile& in_effect, const Measurements& measured) const {
    const std::vector<SlowRank> before = SlowRanksFromProto(in_effect);
    const PassesOf tell = measured.rank_passes.empty() ? PassesOf::kGroups : PassesOf::kRanks;
    std::vector<SlowRank> slow;
    CostFactors factors;
    for (int round = 0; round < kSlowRankRounds; ++round) {
      PENSTOCK_ASSIGN_OR_RETURN(const Fitted groups, Fit(PassesOf::kGroups, measured.passes, slow));
      factors = groups.factors;
      factors.pass_noise = MeasuredNoise(*groups.costs, measured.passes).value_or(in_effect.pass_noise());
      std::vector<SlowRank> found;
      if (tell == PassesOf::kGroups) {
        found = FindSlowRanks(*groups.costs, tell, measured.passes, before, /*peers_alone=*/round == 0);
      } else {
        PENSTOCK_ASSIGN_OR_RETURN(const Fitted ranks, Fit(tell, measured.rank_passes, slow));
        found = FindSlowRanks(*ranks.costs, tell, measured.rank_passes, before, /*peers_alone=*/round == 0);
      }
      const bool settled = round > 0 && LargestChange(slow, found) < kSettled;
      slow = std::move(found);
      if (settled) break;
    }
    factors.slow_ranks = std::move(slow);
    factors.host_share = HostShare(measured.passes);
    return factors;
  }

 private:
  struct Fitted {
    CostFactors factors;
    std::unique_ptr<const CostModel> costs;
  };

  absl::StatusOr<Fitted> Fit(PassesOf of, std::vector<MeasuredPass> passes,
                             absl::Span<const SlowRank> slow) const {
    TakeSlownessOut(slow, job_.topology, of, &passes);
    CostFactors factors = FitCosts(costs_, passes);
    PENSTOCK_ASSIGN_OR_RETURN(
        Profile fitted,
        ProfileFromProto(ReviseProfile(base_, job_.architecture, factors), job_.architecture, job_.windows));
    auto costs = std::make_unique<const CostModel>(std::move(fitted), job_);
    factors.all = MeasuredOverForetold(*costs, passes);
    return Fitted{.factors = std::move(factors), .costs = std::move(costs)};
  }

  const CostModel& costs_;
  const v1::CostProfile& base_;
  const Job& job_;
};

// The profile that the job was registered with, and what has been measured of its routers since: what passes
// are fitted to, which the fullest rank makes longer.
v1::CostProfile BaseOf(const Planner& planner, const v1::CostProfile& in_effect,
                       absl::Span<const ObservedIteration> iterations) {
  v1::CostProfile base = planner.spec().profile();
  *base.mutable_expert_loads() = in_effect.expert_loads();
  CostFactors load;
  load.expert_load = MeasuredExpertLoad(planner.job().topology, iterations);
  return load.expert_load.has_value() ? ReviseProfile(base, planner.job().architecture, load) : base;
}

absl::StatusOr<CostFactors> FactorsOf(const Job& job, const v1::CostProfile& base, v1::CostProfile in_effect,
                                      absl::Span<const ObservedIteration> iterations) {
  *in_effect.mutable_expert_loads() = base.expert_loads();
  PENSTOCK_ASSIGN_OR_RETURN(Profile of_base, ProfileFromProto(base, job.architecture, job.windows));
  PENSTOCK_ASSIGN_OR_RETURN(Profile of_effect, ProfileFromProto(in_effect, job.architecture, job.windows));
  // Links are compared as they should be.
  of_base.slow_links.clear();
  const CostModel costs(std::move(of_base), job);
  PENSTOCK_ASSIGN_OR_RETURN(Measurements all,
                            MeasuredIn(iterations, costs, CostModel(std::move(of_effect), job), job));
  PENSTOCK_ASSIGN_OR_RETURN(CostFactors factors, PassFit(costs, base, job).Run(in_effect, all));
  factors.slow_links = FindSlowLinks(all.transfers, all.rings, SlowLinksFromProto(in_effect));
  TakeSlownessOut(*factors.slow_links, costs.nodes(), &all.reshards);
  factors.links = LinkFactors(all.transfers, all.rings, all.reshards, *factors.slow_links);
  factors.optimizer = OptimizerFactor(all.steps, factors.links, *factors.slow_links) / factors.all;
  return factors;
}

// Of the fullest rank's rows, over what it had; of a mesh that had no load yet it had an even share.
double ChangeOfLoads(const v1::CostProfile& before, const v1::CostProfile& after) {
  std::map<uint32_t, double> known;
  for (const v1::ExpertLoad& load : before.expert_loads()) known[load.ranks()] = load.fullest();
  double change = 0;
  for (const v1::ExpertLoad& load : after.expert_loads()) {
    const double had = known.contains(load.ranks()) ? known[load.ranks()] : 1;
    change = std::max(change, std::abs(load.fullest() / had - 1));
  }
  return change;
}

// What single passes differ by is more than what ranks wait for where they are slow or fast together, or a
// pass that lasted longer makes the next one shorter: so the noise with which plans take as long as was
// measured, and at most `noise`. `missing_with`: what was measured over what plans take with so much.
// Waiting is taken to grow in proportion to noise.
absl::StatusOr<double> NoiseThatRanksWaitFor(double noise,
                                             absl::FunctionRef<absl::StatusOr<double>(double)> missing_with) {
  if (noise == 0) return noise;
  PENSTOCK_ASSIGN_OR_RETURN(const double with_all, missing_with(noise));
  if (with_all >= 1 - kOfChance) return noise;
  PENSTOCK_ASSIGN_OR_RETURN(const double without, missing_with(0));
  if (without <= 1) return 0;
  const double waits_without = 1 / without, waits_with_all = 1 / with_all;
  return noise * (1 - waits_without) / (waits_with_all - waits_without);
}

absl::StatusOr<std::vector<double>> RatiosWith(const v1::CostProfile& profile, const Job& job,
                                               Replays* replays, StopToken stop) {
  PENSTOCK_ASSIGN_OR_RETURN(Profile costs, ProfileFromProto(profile, job.architecture, job.windows));
  return replays->Ratios(CostModel(std::move(costs), job), stop);
}

}  // namespace

absl::StatusOr<std::optional<Calibration>> Calibrate(const Planner& planner, const v1::CostProfile& in_effect,
                                                     absl::Span<const ObservedIteration> iterations,
                                                     StopToken stop) {
  if (iterations.empty()) return std::nullopt;
  const Job& job = planner.job();
  const v1::CostProfile base = BaseOf(planner, in_effect, iterations);
  PENSTOCK_ASSIGN_OR_RETURN(CostFactors factors, FactorsOf(job, base, in_effect, iterations));
  PENSTOCK_ASSIGN_OR_RETURN(Replays replays, Replays::Of(iterations, job));
  const auto ratios_with = [&](double noise) {
    factors.pass_noise = noise;
    return RatiosWith(ReviseProfile(base, job.architecture, factors), job, &replays, stop);
  };
  const auto missing_with = [&](double noise) -> absl::StatusOr<double> {
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<double> ratios, ratios_with(noise));
    return UpperMedian(ratios);
  };
  PENSTOCK_ASSIGN_OR_RETURN(const double noise,
                            NoiseThatRanksWaitFor(factors.pass_noise.value_or(0), missing_with));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<double> ratios,
                            ratios_with(SteadyNoise(noise, in_effect.pass_noise())));
  factors.all *= std::clamp(RecentLevel(ratios), 1 / kMostMissing, kMostMissing);
  factors.waiting = std::clamp(UpperMedian(ratios), 1 / kMostMissing, kMostMissing);
  Calibration result;
  result.profile = ReviseProfile(base, job.architecture, factors);
  // A profile that was given may be wrong by any factor; one that was fitted is near the truth.
  if (in_effect.version() != planner.spec().profile().version())
    result.profile = BoundedStep(in_effect, std::move(result.profile));
  result.profile.set_version(in_effect.version() + 1);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> before, RatiosWith(in_effect, job, &replays, stop));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> after, RatiosWith(result.profile, job, &replays, stop));
  result.error_before = RecentError(before);
  result.error_after = RecentError(after);
  if (result.error_after <= result.error_before - kLeastGain) return result;
  const bool other_speeds =
      LargestChange(SlowRanksFromProto(in_effect), SlowRanksFromProto(result.profile)) >= kSpeedChange;
  const bool other_work =
      other_speeds || ChangeOfLoads(in_effect, result.profile) >= kLoadChange ||
      in_effect.pass_noise() != result.profile.pass_noise() ||
      LargestLinkChange(SlowLinksFromProto(in_effect), SlowLinksFromProto(result.profile)) >= kLinkChange;
  if (other_work && result.error_after <= result.error_before + kMostLoss) return result;
  return std::nullopt;
}

absl::StatusOr<Calibration> CalibratePasses(const Planner& planner, absl::Span<const MeasuredPass> passes) {
  Calibration result;
  const Job& job = planner.job();
  result.profile =
      ReviseProfile(planner.spec().profile(), job.architecture, FitCosts(planner.costs(), passes));
  PENSTOCK_ASSIGN_OR_RETURN(Profile revised, ProfileFromProto(result.profile, job.architecture, job.windows));
  const CostModel after(std::move(revised), job);
  const auto error = [&](const CostModel& costs) {
    std::vector<double> ratios;
    for (const MeasuredPass& pass : passes) {
      const double foretold = ForetoldNs(costs, pass);
      if (foretold > 0) ratios.push_back(pass.duration_ns / foretold);
    }
    if (ratios.empty()) return -1.0;
    return MeanError(ratios);
  };
  result.error_before = error(planner.costs());
  if (result.error_before < 0)
    return absl::InvalidArgumentError("passes: none is inside of what the job's profile was measured for");
  result.error_after = error(after);
  return result;
}

}  // namespace penstock::core
