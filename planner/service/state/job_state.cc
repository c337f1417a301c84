#include "planner/service/state/job_state.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/annotate.h"
#include "planner/core/contract/look_ahead.h"
#include "planner/service/state/check_log.h"
#include "planner/service/state/expert_layers.h"
#include "planner/service/state/summary.h"

namespace penstock {
namespace {

constexpr uint64_t kMinHistory = 64;
constexpr uint64_t kMaxHistory = 65536;
// Of a job without checkpoints: what a failure may have its workers do again.
constexpr uint64_t kHistoryWithoutCheckpoints = 1024;
// Workers keep two checkpoints, and may go back to the oldest; one more may have been left out beside a slow
// disk, or have failed (--checkpoint-failures continue).
constexpr uint64_t kHeldIntervals = 3;

uint64_t WindowOf(const v1::JobSpec& spec) { return core::LookAheadOf(spec); }

uint64_t HistoryOf(const v1::JobSpec& spec) {
  const uint64_t interval = spec.training().checkpoint_interval();
  if (interval == 0) return kHistoryWithoutCheckpoints;
  return std::clamp(std::min(interval, kMaxHistory) * kHeldIntervals, kMinHistory, kMaxHistory);
}

}  // namespace

JobState::JobState(const v1::JobSpec& spec, int64_t unix_ns)
    : spec_(spec),
      strategies_(spec.strategies_size()),
      ranks_(static_cast<uint32_t>(RanksOf(spec))),
      window_(WindowOf(spec)),
      history_(HistoryOf(spec)),
      registered_unix_ns_(unix_ns),
      last_unix_ns_(unix_ns),
      first_held_(spec.first_iteration()),
      admission_(spec.first_iteration()),
      planned_(spec.first_iteration()),
      progress_(ranks_, spec.first_iteration()),
      membership_(ranks_) {
  FinishIfDone();
}

JobState::JobState(const store::v1::JobSnapshot& saved)
    : spec_(saved.spec()),
      strategies_(saved.spec().strategies_size()),
      ranks_(saved.reported_size()),
      window_(WindowOf(saved.spec())),
      history_(HistoryOf(saved.spec())),
      registered_unix_ns_(saved.registered_unix_ns()),
      last_unix_ns_(saved.last_unix_ns()),
      draining_(saved.draining()),
      restored_(saved.restored()),
      finished_(saved.finished()),
      planning_failure_(saved.planning_failure()),
      first_held_(saved.first_held()),
      admission_(saved.spec().first_iteration(), saved.next_iteration(),
                 {saved.batch_hashes().begin(), saved.batch_hashes().end()}),
      planned_(saved.planned()),
      progress_(saved),
      membership_(ranks_, saved.epoch()),
      summaries_(saved, progress_.completed()) {
  if (saved.has_topology()) topologies_.push_back(saved.topology());
  topologies_.insert(topologies_.end(), saved.other_topologies().begin(), saved.other_topologies().end());
  for (const store::v1::IterationPlanned& plan : saved.plans()) plans_[plan.iteration()] = plan;
  for (const store::v1::IterationReported& report : saved.reports()) {
    reports_[report.iteration()][report.rank()] = report;
  }
  costs_.assign(saved.costs().begin(), saved.costs().end());
  planned_end_ = plans_.empty() ? 0 : plans_.rbegin()->first + 1;
  for (const store::v1::PlanningTried& tried : saved.tried()) tries_[tried.iteration()] = tried.tries();
}

store::v1::JobSnapshot JobState::Save() const {
  store::v1::JobSnapshot saved;
  *saved.mutable_spec() = RegisteredSpec();
  if (is_prepared()) {
    *saved.mutable_topology() = topologies_.front();
    const auto registered = static_cast<std::ptrdiff_t>(std::max(strategies_.registered(), uint32_t{1}));
    saved.mutable_other_topologies()->Assign(topologies_.begin() + 1, topologies_.begin() + registered);
  }
  saved.set_registered_unix_ns(registered_unix_ns_);
  saved.set_last_unix_ns(last_unix_ns_);
  saved.set_draining(draining_);
  saved.set_restored(restored_);
  saved.set_finished(finished_);
  saved.set_planning_failure(planning_failure_);
  saved.set_first_held(first_held_);
  saved.set_next_iteration(admission_.next_iteration());
  for (const std::string& hash : admission_.hashes()) saved.add_batch_hashes(hash);
  for (const auto& [iteration, plan] : plans_) *saved.add_plans() = plan;
  for (const auto& [iteration, reports] : reports_) {
    for (const auto& [rank, report] : reports) *saved.add_reports() = report;
  }
  *saved.mutable_planned() = planned_.Save();
  progress_.Save(&saved);
  summaries_.Save(&saved);
  *saved.mutable_epoch() = membership_.Save();
  for (const store::v1::CostsRevised& costs : costs_) *saved.add_costs() = costs;
  for (const auto& [iteration, tries] : tries_) {
    store::v1::PlanningTried* tried = saved.add_tried();
    tried->set_iteration(iteration);
    tried->set_tries(tries);
  }
  return saved;
}

std::vector<store::v1::Event> JobState::SaveChanges() const {
  std::vector<store::v1::Event> events;
  for (const store::v1::StrategiesChanged& change : strategies_.changes()) {
    store::v1::Event& event = events.emplace_back();
    event.set_unix_ns(last_unix_ns_);
    *event.mutable_strategies_changed() = change;
  }
  return events;
}

v1::JobSpec JobState::RegisteredSpec() const {
  v1::JobSpec spec = spec_;
  spec.mutable_strategies()->DeleteSubrange(
      static_cast<int>(strategies_.registered()),
      spec.strategies_size() - static_cast<int>(strategies_.registered()));
  if (!registered_planning_.has_value()) return spec;
  spec.clear_planning();
  spec.MergeFrom(*registered_planning_);
  return spec;
}

void JobState::Apply(const store::v1::Event& event) {
  last_unix_ns_ = std::max(last_unix_ns_, event.unix_ns());
  switch (event.what_case()) {
    case store::v1::Event::kJobPrepared:
      topologies_ = {event.job_prepared().topology()};
      topologies_.insert(topologies_.end(), event.job_prepared().other_topologies().begin(),
                         event.job_prepared().other_topologies().end());
      break;
    case store::v1::Event::kBatchesAccepted:
      Apply(event.batches_accepted());
      break;
    case store::v1::Event::kIterationPlanned:
      Apply(event.iteration_planned());
      break;
    case store::v1::Event::kPlanningTried:
      Apply(event.planning_tried());
      break;
    case store::v1::Event::kPlanningFailed:
      planning_failure_ = event.planning_failed().reason();
      break;
    case store::v1::Event::kWorkerRegistered:
      Apply(event.worker_registered());
      break;
    case store::v1::Event::kRendezvousOpened:
      membership_.Apply(event.rendezvous_opened());
      break;
    case store::v1::Event::kWorkerFailed:
      membership_.Apply(event.worker_failed());
      break;
    case store::v1::Event::kWorkerLeft:
      membership_.Apply(event.worker_left());
      break;
    case store::v1::Event::kIterationReported:
      Apply(event.iteration_reported());
      break;
    case store::v1::Event::kJobRestored:
      restored_ = true;
      break;
    case store::v1::Event::kJobDrained:
      draining_ = true;
      break;
    case store::v1::Event::kCostsRevised:
      costs_.push_back(event.costs_revised());
      break;
    case store::v1::Event::kStrategiesChanged:
      Apply(event.strategies_changed());
      break;
    case store::v1::Event::kJobRegistered:  // the constructor's
    case store::v1::Event::WHAT_NOT_SET:
      break;
  }
  FinishIfDone();
}

std::string JobState::failure() const {
  return planning_failure_.empty() ? membership_.failure() : planning_failure_;
}

const store::v1::IterationPlanned* JobState::PlanOf(uint64_t iteration) const {
  const auto found = plans_.find(iteration);
  return found == plans_.end() ? nullptr : &found->second;
}

uint32_t JobState::TriesOf(uint64_t iteration) const {
  const auto found = tries_.find(iteration);
  return found == tries_.end() ? 0 : found->second;
}

const store::v1::CostsRevised* JobState::CostsOf(uint64_t iteration) const {
  const auto after = std::upper_bound(
      costs_.begin(), costs_.end(), iteration,
      [](uint64_t at, const store::v1::CostsRevised& costs) { return at < costs.from_iteration(); });
  return after == costs_.begin() ? nullptr : &*std::prev(after);
}

uint64_t JobState::CostsVersionOf(uint64_t iteration) const {
  const store::v1::CostsRevised* const costs = CostsOf(iteration);
  return (costs == nullptr ? spec_.profile() : costs->profile()).version();
}

void JobState::Apply(const store::v1::BatchesAccepted& event) {
  for (const std::string& hash : event.hashes()) admission_.Accept(hash);
}

void JobState::Apply(const store::v1::IterationPlanned& event) {
  planned_.Add(event.iteration());
  plans_[event.iteration()] = event;
  tries_.erase(event.iteration());
  planned_end_ = std::max(planned_end_, event.iteration() + 1);
}

void JobState::Apply(const store::v1::PlanningTried& event) {
  if (event.tries() > 0) {
    tries_[event.iteration()] = event.tries();
  } else {
    tries_.erase(event.iteration());
  }
}

void JobState::Apply(const store::v1::StrategiesChanged& event) {
  strategies_.Apply(event);
  spec_.mutable_strategies()->MergeFrom(event.added());
  topologies_.insert(topologies_.end(), event.added_topologies().begin(), event.added_topologies().end());
  if (event.typical_samples().empty()) return;
  if (!registered_planning_.has_value()) {
    registered_planning_.emplace();
    if (spec_.has_planning()) *registered_planning_->mutable_planning() = spec_.planning();
  }
  *spec_.mutable_planning()->mutable_typical_samples() = event.typical_samples();
  spec_.mutable_planning()->set_typical_batch_size(event.typical_batch_size());
}

void JobState::Apply(const store::v1::WorkerRegistered& event) {
  membership_.Apply(event);
  if (event.opens_epoch()) Restart(event.first_iteration());
}

void JobState::Restart(uint64_t first_iteration) {
  progress_.Restart(first_iteration);
  // The checkpoint may be ahead of what is planned.
  planned_.SkipTo(first_iteration);
  summaries_.BeginAt(first_iteration);
  reports_.clear();
}

void JobState::Apply(const store::v1::IterationReported& event) {
  const uint64_t completed = progress_.completed();
  reports_[event.iteration()][event.rank()] = event;
  progress_.Report(event.rank(), event.iteration());
  for (uint64_t iteration = completed; iteration < progress_.completed(); ++iteration) SumUp(iteration);
  if (progress_.completed() == completed) return;
  restored_ = false;
  ForgetOldIterations();
}

void JobState::SumUp(uint64_t iteration) {
  std::vector<store::v1::IterationReported> reports;
  for (const auto& [rank, report] : reports_[iteration]) reports.push_back(report);
  reports_.erase(iteration);
  const store::v1::IterationPlanned* plan = PlanOf(iteration);
  if (plan == nullptr) return;  // a rank reported it before it was planned: no engine takes that
  v1::IterationSummary summary = Summarize(*plan, reports);
  if (plan->strategy() < topologies_.size()) {
    for (v1::ExpertLayerLoad& load :
         ExpertLayersOf(spec_, topologies_[plan->strategy()], plan->strategy(), reports))
      *summary.add_expert_layers() = std::move(load);
  }
  summary.set_planned_ahead(static_cast<uint32_t>(std::max(planned_.next(), iteration + 1) - iteration - 1));
  summaries_.Add(std::move(summary));
}

void JobState::ForgetOldIterations() {
  const uint64_t completed = progress_.completed();
  if (completed < first_held_ + history_ + 1) return;
  first_held_ = completed - history_;
  plans_.erase(plans_.begin(), plans_.lower_bound(first_held_));
  tries_.erase(tries_.begin(), tries_.lower_bound(first_held_));
  while (costs_.size() > 1 && costs_[1].from_iteration() <= first_held_) costs_.pop_front();
  strategies_.ForgetBefore(first_held_);
}

void JobState::FinishIfDone() {
  const uint64_t total = spec_.training().iterations();
  const uint64_t completed = progress_.completed();
  const bool all_done = total > 0 && completed >= total;
  const bool drained = draining_ && (membership_.empty() || completed >= admission_.next_iteration());
  if (all_done || drained) finished_ = true;
}

absl::StatusOr<JobState> ReplayJob(const std::optional<std::string>& snapshot,
                                   const std::vector<std::string>& events) {
  std::optional<JobState> state;
  if (snapshot.has_value()) {
    store::v1::JobSnapshot saved;
    if (!saved.ParseFromString(*snapshot)) return absl::DataLossError("its snapshot cannot be read");
    if (absl::Status status = CheckSnapshot(saved); !status.ok())
      return AnnotateError(status, "its snapshot");
    state.emplace(saved);
  }
  for (size_t i = 0; i < events.size(); ++i) {
    store::v1::Event event;
    if (!event.ParseFromString(events[i]) || event.what_case() == store::v1::Event::WHAT_NOT_SET) {
      return absl::DataLossError(absl::StrCat("its event ", i + 1, " of ", events.size(),
                                              " cannot be read, or is of a newer version"));
    }
    const bool first = !state.has_value();
    if (first && !event.has_job_registered())
      return absl::DataLossError("its first event is not its registration");
    const absl::Status status = first ? CheckRegistered(event.job_registered()) : CheckEvent(*state, event);
    if (!status.ok()) return AnnotateError(status, absl::StrCat("its event ", i + 1, " of ", events.size()));
    if (first) {
      state.emplace(event.job_registered().spec(), event.unix_ns());
    } else {
      state->Apply(event);
    }
  }
  if (!state.has_value()) return absl::DataLossError("it has no events");
  return *std::move(state);
}

}  // namespace penstock
