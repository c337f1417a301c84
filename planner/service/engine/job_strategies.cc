#include "planner/service/engine/job_strategies.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/limits.h"
#include "planner/service/engine/job_phase.h"
#include "planner/service/engine/job_preparation.h"
#include "planner/service/engine/planning_room.h"

namespace penstock {
namespace {

// "job.strategies[3]: ..." of the planner becomes "strategies[1]: ..." of the request. `numbers`: of those in
// the request.
absl::Status NameWantedStrategy(const absl::Status& status, const std::vector<uint32_t>& numbers) {
  absl::string_view rest = status.message();
  if (!absl::ConsumePrefix(&rest, "job.strategies[")) return status;
  const size_t end = rest.find(']');
  uint32_t number = 0;
  if (end == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, end), &number)) return status;
  const auto found = std::ranges::find(numbers, number);
  if (found == numbers.end()) return status;
  return absl::Status(status.code(), absl::StrCat("strategies[", found - numbers.begin(), rest.substr(end)));
}

bool HasTheSameTypicalSamples(const v1::PlanningOptions& planning,
                              const v1::ChangeStrategiesRequest& request) {
  if (request.typical_samples().empty()) return true;
  const auto same = [](const v1::SampleLengths& a, const v1::SampleLengths& b) {
    return a.input_tokens() == b.input_tokens() && a.target_tokens() == b.target_tokens();
  };
  return planning.typical_batch_size() == request.typical_batch_size() &&
         std::ranges::equal(planning.typical_samples(), request.typical_samples(), same);
}

}  // namespace

// A worker that has registered and does not read yet may have been told of fewer strategies than others of
// its epoch: it is waited for.
absl::Status JobStrategies::CheckReadersTakeStrategiesLocked() const {
  const Membership& membership = record_.state().membership();
  std::set<uint32_t> reading;
  for (const v1::StreamProgramsRequest& reader : readers_.streams().requests()) {
    if (!reader.takes_new_strategies()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "who reads the programs of rank ", reader.rank(),
          " takes no strategies that the job gets meanwhile: its Penstock is of an earlier version; upgrade "
          "it, or start the run again with them (penstock up --resume --strategies)"));
    }
    if (membership.Check({reader.rank(), reader.incarnation(), reader.epoch()}).ok())
      reading.insert(reader.rank());
  }
  if (membership.failed()) return absl::OkStatus();
  for (uint32_t rank = 0; rank < record_.state().ranks(); ++rank) {
    if (!membership.IsHeld(rank) || reading.contains(rank)) continue;
    return absl::UnavailableError(absl::StrCat(membership.NameOf(rank),
                                               " does not read programs yet: it joins its epoch, or comes "
                                               "back to this planner; try again in a moment"));
  }
  return absl::OkStatus();
}

absl::Status JobStrategies::CheckMayChangeLocked() const {
  PENSTOCK_RETURN_IF_ERROR(record_.CheckLiveLocked());
  if (record_.spec().strategies().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("job_id: job '", record_.id(),
                     "' has no strategies, but one mesh: register it with strategies, of which one is enough "
                     "(penstock up --strategies)"));
  }
  PENSTOCK_RETURN_IF_ERROR(planners_.CheckPreparedLocked());
  if (record_.state().finished())
    return absl::FailedPreconditionError(absl::StrCat("job '", record_.id(), "' is finished"));
  if (PhaseLocked(record_, planners_) == v1::JOB_STATE_FAILED) {
    return absl::FailedPreconditionError(absl::StrCat("job '", record_.id(),
                                                      "' failed: ", FailureLocked(record_, planners_),
                                                      ": start its workers again first"));
  }
  return CheckReadersTakeStrategiesLocked();
}

v1::ChangeStrategiesResponse JobStrategies::NowLocked(const std::vector<uint32_t>& numbers) const {
  v1::ChangeStrategiesResponse response;
  response.set_from_iteration(
      std::max(record_.state().strategies().from_iteration(), record_.spec().first_iteration()));
  response.mutable_strategies()->Assign(numbers.begin(), numbers.end());
  return response;
}

absl::StatusOr<v1::ChangeStrategiesResponse> JobStrategies::Now() const {
  JobLock lock(record_.mutex());
  if (record_.deleted()) return record_.DeletedError();
  return NowLocked(record_.state().strategies().now());
}

StrategyChanges::Numbers JobStrategies::Numbers() const {
  JobLock lock(record_.mutex());
  return record_.state().strategies().now();
}

absl::StatusOr<std::shared_ptr<JobStrategies::WantedChange>> JobStrategies::BeginChangeLocked(
    const v1::ChangeStrategiesRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(CheckMayChangeLocked());
  auto change = std::make_shared<WantedChange>();
  change->request = request;
  const v1::JobSpec& known = record_.state().spec();
  WantedStrategies wanted = NumberStrategies(known.strategies(), request.strategies());
  change->answer = wanted.numbers;
  change->numbers = std::move(wanted.numbers);
  std::ranges::sort(change->numbers);
  change->numbers.erase(std::unique(change->numbers.begin(), change->numbers.end()), change->numbers.end());
  if (change->numbers == record_.state().strategies().now() &&
      HasTheSameTypicalSamples(known.planning(), request))
    return nullptr;
  change->added = std::move(wanted.added);
  if (known.strategies_size() + static_cast<int>(change->added.size()) > core::kMostStrategies) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "strategies: ", change->added.size(), " of them are new, and the job has had ",
        known.strategies_size(), "; at most ", core::kMostStrategies,
        " in all: use some that it has had, or start the run again (penstock up --resume --strategies)"));
  }
  if (changing_ != nullptr) {
    return absl::UnavailableError(absl::StrCat("other strategies of job '", record_.id(),
                                               "' are being prepared; try again in a moment"));
  }
  change->spec = record_.SpecLocked(record_.spec().profile());
  for (const v1::Strategy& strategy : change->added) *change->spec.add_strategies() = strategy;
  change->topologies = record_.state().topologies();
  changing_ = change;
  return change;
}

v1::JobSpec JobStrategies::WantedChange::SpecToChooseStages() const {
  v1::JobSpec choosing = spec;
  if (request.typical_samples().empty()) return choosing;
  *choosing.mutable_planning()->mutable_typical_samples() = request.typical_samples();
  choosing.mutable_planning()->set_typical_batch_size(request.typical_batch_size());
  return choosing;
}

// As of a registration (PlannerEngine::AdmitPreparation): what it takes, bytes.
absl::StatusOr<int64_t> JobStrategies::AdmitChange(const WantedChange& change) const {
  PENSTOCK_RETURN_IF_ERROR(record_.services().quotas->CheckPlanning(record_.payer()));
  const v1::JobSpec choosing = change.SpecToChooseStages();
  PENSTOCK_RETURN_IF_ERROR(record_.services().planners->Check(choosing));
  const absl::StatusOr<core::PlanningShape> shape = record_.services().planners->ShapeOf(choosing, nullptr);
  if (shape.ok() && shape->samples > 0) {
    PENSTOCK_RETURN_IF_ERROR(
        CheckRoom("typical_samples", *shape, {.planning_bytes = record_.services().room.planning_bytes}));
  }
  if (!record_.TryReserve(PlanningClass::kPreparation))
    return absl::ResourceExhaustedError("the planning queue is full: try again in a moment");
  return PreparationBytes(record_.services(), choosing);
}

void JobStrategies::EndChange() {
  JobLock lock(record_.mutex());
  changing_ = nullptr;
  ticket_ = nullptr;
}

PlanningTicketPtr JobStrategies::Change(const v1::ChangeStrategiesRequest& request, Done done) {
  absl::StatusOr<std::shared_ptr<WantedChange>> begun = nullptr;
  v1::ChangeStrategiesResponse unchanged;
  {
    JobLock lock(record_.mutex());
    begun = BeginChangeLocked(request);
    if (begun.ok() && *begun == nullptr)
      unchanged =
          NowLocked(NumberStrategies(record_.state().spec().strategies(), request.strategies()).numbers);
  }
  if (!begun.ok()) {
    done(begun.status());
    return nullptr;
  }
  const std::shared_ptr<const WantedChange> change = *std::move(begun);
  if (change == nullptr) {
    AnswerChange(std::move(unchanged), std::move(done));
    return nullptr;
  }
  const absl::StatusOr<int64_t> bytes = AdmitChange(*change);
  if (!bytes.ok()) {
    EndChange();
    done(NameWantedStrategy(bytes.status(), change->answer));
    return nullptr;
  }
  PlanningTicketPtr ticket =
      record_.Run(PlanningClass::kPreparation, *bytes,
                  [this, change, done = std::move(done)](const PlanningTicket& running) {
                    RunChange(*change, running, done);
                  });
  bool deleted = false;
  {
    JobLock lock(record_.mutex());
    deleted = record_.deleted();
    // Unless it has ended, and another one was begun.
    if (changing_ == change) ticket_ = ticket;
  }
  if (deleted) record_.services().pool->Cancel(ticket);
  return ticket;
}

void JobStrategies::Cancel() {
  PlanningTicketPtr ticket;
  {
    JobLock lock(record_.mutex());
    ticket = std::move(ticket_);
  }
  if (ticket != nullptr) record_.services().pool->Cancel(ticket);
}

// Once what led to the answer is on the disk.
void JobStrategies::AnswerChange(v1::ChangeStrategiesResponse answer, Done done) const {
  record_.WhenDurable([answer = std::move(answer), done = std::move(done)](const absl::Status& durable) {
    if (!durable.ok()) return done(durable);
    done(answer);
  });
}

void JobStrategies::RunChange(const WantedChange& change, const PlanningTicket& ticket, const Done& done) {
  absl::StatusOr<v1::ChangeStrategiesResponse> answer = MakeChange(change, ticket);
  EndChange();
  if (!answer.ok()) return done(NameWantedStrategy(ticket.Explain(answer.status()), change.answer));
  AnswerChange(*std::move(answer), done);
  readers_.WakeAll();
  planning_.PlanMore();
}

absl::StatusOr<v1::ChangeStrategiesResponse> JobStrategies::MakeChange(const WantedChange& change,
                                                                       const PlanningTicket& ticket) {
  PENSTOCK_RETURN_IF_ERROR(ticket.status());
  const size_t known = change.topologies.size();
  std::vector<v1::Topology> topologies = change.topologies;
  if (!change.added.empty()) {
    std::vector<uint32_t> added;
    for (size_t i = 0; i < change.added.size(); ++i) added.push_back(static_cast<uint32_t>(known + i));
    PENSTOCK_ASSIGN_OR_RETURN(
        const std::unique_ptr<BatchPlanner> chosen,
        record_.services().planners->Create(change.SpecToChooseStages(), topologies, added, ticket.stop()));
    const std::vector<v1::Topology> stages = chosen->Topologies();
    topologies.insert(topologies.end(), stages.begin(), stages.end());
  }
  PreparedChange prepared = {
      .topologies = {topologies.begin() + static_cast<std::ptrdiff_t>(known), topologies.end()}};
  PENSTOCK_ASSIGN_OR_RETURN(prepared.planner, record_.services().planners->Create(
                                                  change.spec, topologies, change.numbers, ticket.stop()));
  while (true) {
    PENSTOCK_RETURN_IF_ERROR(ticket.stop().status());
    PENSTOCK_RETURN_IF_ERROR(TakeCostsInEffect(change, topologies, ticket, &prepared));
    PENSTOCK_RETURN_IF_ERROR(CheckAcceptedFit(ticket, &prepared));
    JobLock lock(record_.mutex());
    PENSTOCK_RETURN_IF_ERROR(CheckMayChangeLocked());
    if (record_.CostsInEffectLocked().version() != prepared.costs_version ||
        record_.state().admission().next_iteration() > prepared.checked_before)
      continue;
    return KeepChangeLocked(change, std::move(prepared));
  }
}

// A planner with the costs that the next plans are made with, where they were revised.
absl::Status JobStrategies::TakeCostsInEffect(const WantedChange& change,
                                              absl::Span<const v1::Topology> topologies,
                                              const PlanningTicket& ticket, PreparedChange* prepared) {
  v1::JobSpec spec;
  {
    JobLock lock(record_.mutex());
    const uint64_t version = record_.CostsInEffectLocked().version();
    const bool revised = record_.state().LastCosts() != nullptr;
    if (version == prepared->costs_version && (!revised || prepared->revised != nullptr))
      return absl::OkStatus();
    prepared->costs_version = version;
    // With other costs they may not fit.
    prepared->checked_before = 0;
    if (!revised) return absl::OkStatus();
    spec = change.spec;
    *spec.mutable_profile() = record_.state().LastCosts()->profile();
  }
  PENSTOCK_ASSIGN_OR_RETURN(prepared->revised, record_.services().planners->Create(
                                                   spec, topologies, change.numbers, ticket.stop()));
  return absl::OkStatus();
}

// That each batch that is accepted and not planned fits one of the new strategies.
absl::Status JobStrategies::CheckAcceptedFit(const PlanningTicket& ticket, PreparedChange* prepared) {
  uint64_t first = 0;
  uint64_t end = 0;
  {
    JobLock lock(record_.mutex());
    first = std::max(planning_.FirstUnplannedLocked(), prepared->checked_before);
    end = record_.state().admission().next_iteration();
  }
  const BatchPlanner& planner = prepared->revised != nullptr ? *prepared->revised : *prepared->planner;
  for (uint64_t iteration = first; iteration < end; ++iteration) {
    PENSTOCK_ASSIGN_OR_RETURN(const BatchPtr batch, planning_.BatchOf(iteration, planner));
    const absl::Status fits = planner.CheckBatch(*batch, ticket.stop());
    if (!absl::IsInvalidArgument(fits)) {
      PENSTOCK_RETURN_IF_ERROR(fits);
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("strategies: the batch of iteration ", iteration,
                     ", which is accepted and not planned, fits none of them: ", fits.message()));
  }
  prepared->checked_before = std::max(prepared->checked_before, end);
  return absl::OkStatus();
}

v1::ChangeStrategiesResponse JobStrategies::KeepChangeLocked(const WantedChange& change,
                                                             PreparedChange prepared) {
  store::v1::Event event;
  store::v1::StrategiesChanged& changed = *event.mutable_strategies_changed();
  changed.set_from_iteration(planning_.FirstUnplannedLocked());
  changed.mutable_strategies()->Assign(change.numbers.begin(), change.numbers.end());
  changed.mutable_added()->Assign(change.added.begin(), change.added.end());
  changed.mutable_added_topologies()->Assign(prepared.topologies.begin(), prepared.topologies.end());
  *changed.mutable_typical_samples() = change.request.typical_samples();
  changed.set_typical_batch_size(change.request.typical_batch_size());
  LogInfo("strategies changed", {{"job", record_.id()},
                                 {"strategies", absl::StrJoin(change.numbers, ",")},
                                 {"added", change.added.size()},
                                 {"from_iteration", changed.from_iteration()}});
  record_.AppendLocked(std::move(event));
  planners_.ChangeStrategiesLocked(change.numbers, std::move(prepared.planner), std::move(prepared.revised),
                                   prepared.costs_version);
  admission_.ExpectLengthsLocked(record_.state().spec().planning());
  return NowLocked(change.answer);
}

}  // namespace penstock
