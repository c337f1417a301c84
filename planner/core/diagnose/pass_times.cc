#include "planner/core/diagnose/pass_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace penstock::core {
namespace {

constexpr int kPassKinds = 4;
// The standard deviation of a normal distribution by the median of absolute values.
constexpr double kDeviationPerMedian = 1.4826;
// A rank is called slow from here on: less is how any two ranks differ.
constexpr double kLeastFactor = 1.05;
// How many of its standard errors a factor is away from 1.
constexpr double kLeastErrors = 5;
// Noise that no number of passes makes smaller: what a model of times leaves out.
constexpr double kLeastNoise = 1e-3;
constexpr double kConfidence95 = 1.96;
// More slow ranks than one in so many are the usual ones.
constexpr int kRanksPerSlowOne = 3;

// The lower one of the two in the middle: of two ranks the fast one is usual.
double LowerMedian(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double Deviation(std::vector<double> values) {
  const double center = LowerMedian(values);
  for (double& value : values) value = std::abs(value - center);
  return kDeviationPerMedian * LowerMedian(values);
}

double Square(double value) { return value * value; }

}  // namespace

PassTimes::PassTimes(const Timeline& timeline) : timeline_(timeline), factors_(timeline.places.size(), 1.0) {
  ReadRows();
  FitUsual();
  FitSpreads();
  const size_t most = std::max<size_t>(1, timeline.places.size() / kRanksPerSlowOne);
  while (slow_.size() < most && FindSlowRank()) {
    FitUsual();
    FitSpreads();
  }
  FitWork();
}

int32_t PassTimes::SlotOf(OperationKind kind, int32_t model_stage) const {
  return static_cast<int32_t>(kind) * model_stages_ + (known_work_ ? 0 : model_stage);
}

void PassTimes::ReadRows() {
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
  for (size_t step = 0; step < timeline_.steps.size(); ++step) {
    for (const Operation& operation : timeline_.steps[step].operations) {
      if (!IsPassKind(operation.kind) || operation.duration_ns <= 0) continue;
      rows_.push_back({.rank = operation.rank,
                       .slot = SlotOf(operation.kind, operation.model_stage),
                       .work = WorkIndex(step, operation),
                       .log_ns = std::log(static_cast<double>(operation.duration_ns)) -
                                 (known_work_ ? std::log(static_cast<double>(operation.expected_ns)) : 0.0)});
    }
  }
}

int32_t PassTimes::WorkIndex(size_t step, const Operation& pass) const {
  return work_begin_[step] + timeline_.places[pass.rank].replica * micro_batches_[step] + pass.micro_batch;
}

void PassTimes::FitUsual() {
  std::vector<std::map<int32_t, std::vector<double>>> of_ranks(kPassKinds * model_stages_);
  for (const Row& row : rows_) of_ranks[row.slot][row.rank].push_back(row.log_ns - std::log(factors_[row.rank]));
  usual_.assign(of_ranks.size(), 0.0);
  for (size_t slot = 0; slot < of_ranks.size(); ++slot) {
    std::vector<double> medians;
    for (auto& [rank, values] : of_ranks[slot]) medians.push_back(LowerMedian(values));
    usual_[slot] = LowerMedian(medians);
  }
}

std::vector<std::map<int32_t, double>> PassTimes::ResidualsByWork() const {
  std::vector<std::map<int32_t, std::pair<double, int>>> sums(works_);
  for (const Row& row : rows_) {
    auto& [sum, count] = sums[row.work][row.rank];
    sum += row.log_ns - usual_[row.slot] - std::log(factors_[row.rank]);
    ++count;
  }
  std::vector<std::map<int32_t, double>> means(works_);
  for (int32_t work = 0; work < works_; ++work) {
    for (const auto& [rank, sum] : sums[work]) means[work][rank] = sum.first / sum.second;
  }
  return means;
}

void PassTimes::FitSpreads() {
  std::vector<double> apart, means;
  for (const auto& of_ranks : ResidualsByWork()) {
    double sum = 0;
    const double* before = nullptr;
    for (const auto& [rank, residual] : of_ranks) {
      if (before != nullptr) apart.push_back((residual - *before) / std::sqrt(2.0));
      before = &residual;
      sum += residual;
    }
    if (!of_ranks.empty()) means.push_back(sum / static_cast<double>(of_ranks.size()));
  }
  const double spread = Deviation(std::move(means));
  // Without a second stage nothing tells noise from work.
  noise_ = std::max(kLeastNoise, apart.empty() ? spread : Deviation(std::move(apart)));
  const double stages = std::max(1, timeline_.stages);
  work_spread_ = known_work_ ? 0 : std::sqrt(std::max(0.0, Square(spread) - Square(noise_) / stages));
}

// Forward selection among one-rank hypotheses by their likelihood: residuals of the ranks of a replica have the
// covariance noise^2 I + work_spread^2 11', whose inverse is known in closed form.
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
  SlowRank found;
  double found_log = 0;
  for (size_t rank = 0; rank < of_rank.size(); ++rank) {
    if (of_rank[rank].empty() || factors_[rank] > 1) continue;
    const int replica = timeline_.places[rank].replica;
    const double shared = Square(work_spread_) / (Square(noise_) + ranks[replica] * Square(work_spread_));
    const double own = 1 - shared;
    const double slow = (medians[rank] - shared * sums[replica]) / own;
    const double error = noise_ / std::sqrt(own * static_cast<double>(of_rank[rank].size()));
    const double likelihood = Square(slow / error);
    if (slow < std::log(kLeastFactor) || slow < kLeastErrors * error || likelihood <= most) continue;
    most = likelihood;
    found = {.rank = static_cast<int32_t>(rank), .factor = std::exp(slow), .uncertainty = kConfidence95 * error};
    found_log = slow;
  }
  if (found_log == 0) return false;
  factors_[found.rank] = found.factor;
  slow_.push_back(found);
  return true;
}

void PassTimes::FitWork() {
  work_.assign(works_, 1.0);
  if (known_work_) return;
  const auto residuals = ResidualsByWork();
  for (int32_t work = 0; work < works_; ++work) {
    std::vector<double> of_stages;
    double sum = 0;
    for (const auto& [rank, residual] : residuals[work]) {
      of_stages.push_back(residual);
      sum += residual;
    }
    // The mean of two; of more the median, which one slow pass does not move.
    if (!of_stages.empty()) {
      work_[work] = std::exp(of_stages.size() < 3 ? sum / static_cast<double>(of_stages.size()) : LowerMedian(of_stages));
    }
  }
}

double PassTimes::UsualNs(const Operation& pass) const {
  const double usual = std::exp(usual_[SlotOf(pass.kind, pass.model_stage)]);
  return known_work_ ? usual * static_cast<double>(pass.expected_ns) : usual;
}

double PassTimes::MeanOfStagesNs(OperationKind kind) const {
  double sum = 0;
  for (int32_t stage = 0; stage < model_stages_; ++stage) sum += std::exp(usual_[SlotOf(kind, stage)]);
  return sum / model_stages_;
}

double PassTimes::WorkOf(size_t step, const Operation& pass) const { return work_[WorkIndex(step, pass)]; }

}  // namespace penstock::core
