#include "planner/core/diagnose/pass_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "common/median/median.h"

namespace penstock::core {
namespace {

constexpr int kPassKinds = 4;
// The standard deviation of a normal distribution by the median of absolute values.
constexpr double kDeviationPerMedian = 1.4826;
// A rank is called slow from here on: less is how any two ranks differ; more where work is guessed, because
// attention, heads and recomputation give stages different shares of it.
constexpr double kLeastFactor = 1.05;
constexpr double kLeastFactorOfGuesses = 1.15;
// How many of its standard errors a factor is away from 1.
constexpr double kLeastErrors = 5;
// Noise that no number of passes makes smaller: what a model of times leaves out.
constexpr double kLeastNoise = 1e-3;
constexpr double kConfidence95 = 1.96;
constexpr int32_t kStagesToPolish = 3;
constexpr int kPolishRounds = 8;
// More slow ranks than one in so many are the usual ones.
constexpr int kRanksPerSlowOne = 3;

double Deviation(std::vector<double> values) {
  const double center = LowerMedian(values);
  for (double& value : values) value = std::abs(value - center);
  return kDeviationPerMedian * LowerMedian(values);
}

// The mean of two; of more the median (the lower one: of two groups the fast one is usual), which one slow
// rank does not move.
double MedianOfRanks(const std::map<int32_t, double>& of_ranks) {
  std::vector<double> values;
  double sum = 0;
  for (const auto& [rank, value] : of_ranks) {
    values.push_back(value);
    sum += value;
  }
  if (values.empty()) return 0;
  return values.size() < 3 ? sum / static_cast<double>(values.size()) : LowerMedian(values);
}

// 1 where it is between them.
double NearerToOne(double one, double other) {
  if ((one - 1) * (other - 1) <= 0) return 1;
  return std::abs(std::log(one)) < std::abs(std::log(other)) ? one : other;
}

double Squared(double value) { return value * value; }

}  // namespace

PassTimes::PassTimes(const Timeline& timeline)
    : timeline_(timeline),
      factors_(timeline.places.size(), 1.0),
      group_factors_(timeline.places.size(), 1.0) {
  FindUsualCoreShare();
  CountWorks();
  ReadRows();
  FitUsual();
  FitSpreads();
  const size_t most = std::max<size_t>(1, timeline.places.size() / kRanksPerSlowOne);
  while (slow_.size() < most && FindSlowRank()) {
    FitUsual();
    FitSpreads();
  }
  FitWork();
  FindGroupFactors();
  FitUsualOfKinds();
  if (!known_work_) return;
  std::vector<double> ratios;
  for (const Row& row : rows_) ratios.push_back(std::log(row.whole_ns / row.expected_whole_ns));
  foreseen_factor_ = std::exp(LowerMedian(ratios));
}

int32_t PassTimes::KindSlotOf(OperationKind kind, int32_t model_stage) const {
  return static_cast<int32_t>(kind) * model_stages_ + model_stage;
}

int32_t PassTimes::WorkIndex(size_t step, const Operation& pass) const {
  return work_begin_[step] + timeline_.places[pass.rank].replica * micro_batches_[step] + pass.micro_batch;
}

void PassTimes::FindUsualCoreShare() {
  std::vector<double> shares;
  for (const TimelineStep& step : timeline_.steps) {
    for (const Operation& operation : step.operations) {
      if (IsPassKind(operation.kind)) shares.push_back(operation.core_share);
    }
  }
  if (!shares.empty()) usual_core_share_ = UpperMedian(shares);
}

void PassTimes::CountWorks() {
  known_work_ = true;
  for (const TimelineStep& step : timeline_.steps) {
    int32_t micro_batches = 0;
    for (const Operation& operation : step.operations) {
      if (!IsPassKind(operation.kind)) continue;
      micro_batches = std::max(micro_batches, operation.micro_batch + 1);
      model_stages_ = std::max(model_stages_, operation.model_stage + 1);
      known_work_ = known_work_ && operation.expected_ns > 0;
    }
    work_begin_.push_back(works_);
    micro_batches_.push_back(micro_batches);
    works_ += micro_batches * timeline_.replicas;
  }
}

void PassTimes::ReadRows() {
  std::map<std::tuple<int32_t, int32_t, int32_t>, Row> rows;
  for (size_t step = 0; step < timeline_.steps.size(); ++step) {
    for (const Operation& operation : timeline_.steps[step].operations) {
      if (!IsPassKind(operation.kind)) continue;
      const int32_t work = WorkIndex(step, operation);
      const int32_t slot = SlotOf(operation.kind == OperationKind::kForward, operation.model_stage);
      Row& row = rows[{work, operation.rank, slot}];
      row.work = work;
      row.rank = operation.rank;
      row.slot = slot;
      const bool in_group = operation.computed_ns > 0;
      row.whole_ns += WithUsualCoreNs(operation);
      row.expected_whole_ns += static_cast<double>(operation.expected_ns);
      row.ns += in_group ? static_cast<double>(operation.computed_ns) : WithUsualCoreNs(operation);
      row.expected_ns +=
          static_cast<double>(in_group ? operation.expected_computed_ns : operation.expected_ns);
    }
  }
  for (auto& [key, row] : rows) {
    if (row.ns <= 0) continue;
    row.log_ns = std::log(row.ns) - (known_work_ ? std::log(row.expected_ns) : 0.0);
    rows_.push_back(row);
  }
}

// With known work all stages are alike: forward and backward passes of all ranks are compared. Otherwise,
// from three stages on, medians of stages and of micro-batches are taken off in turns (median polish, Tukey
// 1977), so that replicas that have longer samples do not count as slow ones.
void PassTimes::FitUsual() {
  usual_.assign(2 * model_stages_, 0.0);
  std::vector<double> work(works_, 0.0);
  const bool polish = !known_work_ && timeline_.stages >= kStagesToPolish;
  for (int round = 0; round < (polish ? kPolishRounds : 1); ++round) {
    FitUsualWithout(work);
    if (!polish) break;
    const std::vector<OfRanks> residuals = ResidualsByWork();
    for (int32_t i = 0; i < works_; ++i) work[i] = MedianOfRanks(residuals[i]);
  }
}

void PassTimes::FitUsualWithout(absl::Span<const double> work) {
  const auto group = [&](int32_t slot) { return known_work_ ? slot % 2 : slot; };
  std::map<int32_t, std::map<int32_t, std::vector<double>>> of_ranks;
  for (const Row& row : rows_)
    of_ranks[group(row.slot)][row.rank].push_back(row.log_ns - work[row.work] - std::log(factors_[row.rank]));
  for (size_t slot = 0; slot < usual_.size(); ++slot) {
    std::vector<double> medians;
    for (auto& [rank, values] : of_ranks[group(static_cast<int32_t>(slot))])
      medians.push_back(LowerMedian(values));
    usual_[slot] = LowerMedian(medians);
  }
  if (known_work_) AddWhatStagesShare();
}

// Of several ranks of a stage: that of the rank which is nearest to the usual, where all are on one side.
void PassTimes::AddWhatStagesShare() {
  std::map<int32_t, std::map<int32_t, std::vector<double>>> of_slots;
  for (const Row& row : rows_)
    of_slots[row.slot][row.rank].push_back(row.log_ns - usual_[row.slot] - std::log(factors_[row.rank]));
  for (auto& [slot, of_ranks] : of_slots) {
    if (of_ranks.size() < 2) continue;
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (auto& [rank, values] : of_ranks) {
      const double median = LowerMedian(values);
      least = std::min(least, median);
      most = std::max(most, median);
    }
    usual_[slot] += least > 0 ? least : std::min(most, 0.0);
  }
}

std::vector<PassTimes::OfRanks> PassTimes::ResidualsByWork() const {
  std::vector<std::map<int32_t, std::pair<double, int>>> sums(works_);
  for (const Row& row : rows_) {
    auto& [sum, count] = sums[row.work][row.rank];
    sum += row.log_ns - usual_[row.slot] - std::log(factors_[row.rank]);
    ++count;
  }
  std::vector<OfRanks> means(works_);
  for (int32_t work = 0; work < works_; ++work) {
    for (const auto& [rank, sum] : sums[work]) means[work][rank] = sum.first / sum.second;
  }
  return means;
}

// Around the median of each rank: a slow rank is neither noise nor work.
void PassTimes::FitSpreads() {
  const std::vector<OfRanks> residuals = ResidualsByWork();
  std::vector<std::vector<double>> of_rank(factors_.size());
  for (const OfRanks& of_work : residuals) {
    for (const auto& [rank, residual] : of_work) of_rank[rank].push_back(residual);
  }
  std::vector<double> medians;
  for (std::vector<double>& values : of_rank) medians.push_back(LowerMedian(values));
  std::vector<double> apart, means, all;
  for (const OfRanks& of_work : residuals) {
    double sum = 0, before = 0;
    for (const auto& [rank, residual] : of_work) {
      const double around = residual - medians[rank];
      all.push_back(around);
      if (sum != 0) apart.push_back((around - before) / std::sqrt(2.0));
      before = around;
      sum += around;
    }
    if (!of_work.empty()) means.push_back(sum / static_cast<double>(of_work.size()));
  }
  const double spread = Deviation(std::move(means));
  // Without a second stage nothing tells noise from work.
  if (known_work_ || apart.empty()) apart = std::move(all);
  noise_ = std::max(kLeastNoise, Deviation(std::move(apart)));
  const double stages = std::max(1, timeline_.stages);
  work_spread_ = known_work_ ? 0 : std::sqrt(std::max(0.0, Squared(spread) - Squared(noise_) / stages));
}

// Forward selection among one-rank hypotheses by their likelihood: residuals of the ranks of a replica have
// the covariance noise^2 I + work_spread^2 11', whose inverse is known in closed form.
bool PassTimes::FindSlowRank() {
  std::vector<std::vector<double>> of_rank(factors_.size());
  for (const auto& residuals : ResidualsByWork()) {
    for (const auto& [rank, residual] : residuals) of_rank[rank].push_back(residual);
  }
  std::vector<double> medians(factors_.size(), 0.0), sums(timeline_.replicas, 0.0);
  std::vector<int> ranks(timeline_.replicas, 0);
  for (size_t rank = 0; rank < of_rank.size(); ++rank) {
    medians[rank] = LowerMedian(of_rank[rank]);
    if (of_rank[rank].empty()) continue;
    sums[timeline_.places[rank].replica] += medians[rank];
    ++ranks[timeline_.places[rank].replica];
  }
  double most = 0;
  DiagnosedRank found;
  double found_log = 0;
  for (size_t rank = 0; rank < of_rank.size(); ++rank) {
    if (of_rank[rank].empty() || factors_[rank] > 1) continue;
    const int replica = timeline_.places[rank].replica;
    const double shared = Squared(work_spread_) / (Squared(noise_) + ranks[replica] * Squared(work_spread_));
    const double own = 1 - shared;
    const double slow = (medians[rank] - shared * sums[replica]) / own;
    const double error = noise_ / std::sqrt(own * static_cast<double>(of_rank[rank].size()));
    const double likelihood = Squared(slow / error);
    if (slow < std::log(known_work_ ? kLeastFactor : kLeastFactorOfGuesses) || slow < kLeastErrors * error ||
        likelihood <= most)
      continue;
    most = likelihood;
    found = {
        .rank = static_cast<int32_t>(rank), .factor = std::exp(slow), .uncertainty = kConfidence95 * error};
    found_log = slow;
  }
  if (found_log == 0) return false;
  factors_[found.rank] = found.factor;
  slow_.push_back(found);
  return true;
}

void PassTimes::FindGroupFactors() {
  group_factors_ = factors_;
  std::set<int32_t> says_what_it_computed;
  for (const TimelineStep& step : timeline_.steps) {
    for (const Operation& operation : step.operations) {
      if (operation.computed_ns > 0) says_what_it_computed.insert(operation.rank);
    }
  }
  std::map<std::pair<int32_t, int32_t>, double> slowest;
  const auto slowest_of = [&](int32_t rank) -> double& {
    const TimelinePlace& place = timeline_.places[rank];
    return slowest.try_emplace({place.named_replica(), place.stage}, 1).first->second;
  };
  for (const int32_t rank : says_what_it_computed)
    slowest_of(rank) = std::max(slowest_of(rank), factors_[rank]);
  for (const int32_t rank : says_what_it_computed) group_factors_[rank] = slowest_of(rank);
}

void PassTimes::FitWork() {
  work_.assign(works_, 1.0);
  if (known_work_) return;
  const std::vector<OfRanks> residuals = ResidualsByWork();
  for (int32_t i = 0; i < works_; ++i) work_[i] = std::exp(MedianOfRanks(residuals[i]));
}

void PassTimes::FitUsualOfKinds() {
  std::vector<std::vector<double>> of_kinds(kPassKinds * model_stages_);
  measured_of_kinds_.assign(of_kinds.size(), 0.0);
  std::vector<double> foreseen(of_kinds.size(), 0.0), as_it_was(of_kinds.size(), 0.0);
  for (size_t step = 0; step < timeline_.steps.size(); ++step) {
    for (const Operation& pass : timeline_.steps[step].operations) {
      if (!IsPassKind(pass.kind) || pass.duration_ns <= 0) continue;
      const int32_t slot = KindSlotOf(pass.kind, pass.model_stage);
      const double work = known_work_ ? static_cast<double>(pass.expected_ns) : WorkOf(step, pass);
      const double took = WithUsualCoreNs(pass) / FactorOf(pass.rank);
      of_kinds[slot].push_back(std::log(took / work));
      measured_of_kinds_[slot] += took;
      as_it_was[slot] += static_cast<double>(pass.duration_ns) / FactorOf(pass.rank);
      foreseen[slot] += work;
    }
  }
  for (size_t slot = 0; slot < of_kinds.size(); ++slot) {
    usual_of_kinds_.push_back(LowerMedian(of_kinds[slot]));
    mean_of_kinds_.push_back(foreseen[slot] > 0 ? measured_of_kinds_[slot] / foreseen[slot] : 1);
    // Costs may have been measured on cores that are shared, or not.
    const double shared = foreseen[slot] > 0 ? as_it_was[slot] / foreseen[slot] : 1;
    foreseen_of_kinds_.push_back(NearerToOne(mean_of_kinds_.back(), shared));
  }
}

std::vector<ForeseenRatio> PassTimes::ForeseenRatios() const {
  double all = 0;
  for (const double measured : measured_of_kinds_) all += measured;
  std::vector<ForeseenRatio> ratios;
  for (int kind = 0; kind < kPassKinds; ++kind) {
    for (int32_t stage = 0; stage < model_stages_; ++stage) {
      const int32_t slot = KindSlotOf(static_cast<OperationKind>(kind), stage);
      if (measured_of_kinds_[slot] <= 0) continue;
      ratios.push_back({.kind = static_cast<OperationKind>(kind),
                        .model_stage = stage,
                        .ratio = foreseen_of_kinds_[slot],
                        .share = measured_of_kinds_[slot] / all});
    }
  }
  return ratios;
}

double PassTimes::MeanNs(const Operation& pass) const {
  return static_cast<double>(pass.expected_ns) * mean_of_kinds_[KindSlotOf(pass.kind, pass.model_stage)];
}

double PassTimes::UsualNs(const Operation& pass) const {
  const double usual = std::exp(usual_of_kinds_[KindSlotOf(pass.kind, pass.model_stage)]);
  return known_work_ ? usual * static_cast<double>(pass.expected_ns) : usual;
}

double PassTimes::MeanOfStagesNs(OperationKind kind) const {
  double sum = 0;
  for (int32_t stage = 0; stage < model_stages_; ++stage)
    sum += std::exp(usual_of_kinds_[KindSlotOf(kind, stage)]);
  return sum / model_stages_;
}

double PassTimes::WorkOf(size_t step, const Operation& pass) const { return work_[WorkIndex(step, pass)]; }

}  // namespace penstock::core
