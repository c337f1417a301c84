#include "planner/service/engine/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"

namespace penstock {

std::string Membership::NameOf(uint32_t rank) const {
  const Member& member = *members_[rank];
  return absl::StrCat("rank ", rank, " (", member.host, ", incarnation ", member.incarnation, ")");
}

std::optional<uint32_t> Membership::RankOf(uint64_t incarnation) const {
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].has_value() && members_[rank]->incarnation == incarnation) return rank;
  }
  return std::nullopt;
}

bool Membership::WasReplaced(uint64_t incarnation) const {
  return std::find(replaced_.begin(), replaced_.end(), incarnation) != replaced_.end();
}

bool Membership::ready() const {
  return !failed() && !rendezvous_address_.empty() &&
         std::all_of(members_.begin(), members_.end(), [](const auto& member) { return member.has_value(); });
}

bool Membership::empty() const {
  return std::none_of(members_.begin(), members_.end(),
                      [](const auto& member) { return member.has_value(); });
}

absl::Duration Membership::heartbeat_interval() const {
  return std::min(timeout_ / 5, absl::Milliseconds(500));
}

void Membership::OpenEpoch(uint64_t first_iteration) {
  for (auto& member : members_) {
    if (member.has_value()) replaced_.push_back(member->incarnation);
    member.reset();
  }
  while (replaced_.size() > kRememberedIncarnations) replaced_.pop_front();
  last_failure_ = failure_.Describe();
  failure_ = EpochFailure();
  rendezvous_address_.clear();
  first_iteration_ = first_iteration;
  ++epoch_;
}

absl::StatusOr<uint32_t> Membership::PickRank(int32_t wanted) const {
  if (wanted >= 0) {
    if (members_[wanted].has_value()) {
      return absl::AlreadyExistsError(absl::StrCat("rank: ", NameOf(wanted), " is alive and holds it"));
    }
    return static_cast<uint32_t>(wanted);
  }
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (!members_[rank].has_value()) return rank;
  }
  return absl::ResourceExhaustedError(absl::StrCat("all ", members_.size(), " ranks of the job are taken"));
}

absl::StatusOr<Membership::Registration> Membership::Register(const v1::RegisterWorkerRequest& request,
                                                              absl::Time now) {
  if (request.incarnation() == 0)
    return absl::InvalidArgumentError("incarnation is 0: choose a random number");
  if (request.rank() < -1 || request.rank() >= static_cast<int64_t>(members_.size())) {
    return absl::InvalidArgumentError(absl::StrCat("rank is ", request.rank(), ", but the job has ",
                                                   members_.size(), " ranks: 0 to ", members_.size() - 1,
                                                   ", or -1 for any"));
  }
  if (const auto rank = RankOf(request.incarnation()); rank.has_value() && !failed()) {
    return Registration{*rank, epoch_, /*opened_epoch=*/false};
  }
  if (WasReplaced(request.incarnation()) || RankOf(request.incarnation()).has_value()) {
    return absl::AbortedError(
        absl::StrCat("incarnation ", request.incarnation(), " belongs to an epoch that is over (",
                     failed() ? failure() : last_failure_, "): register with a new incarnation"));
  }
  const bool opens = epoch_ == 0 || failed();
  if (opens) OpenEpoch(request.first_iteration());
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t rank, PickRank(request.rank()));
  members_[rank] = Member{request.incarnation(), request.host(), now};
  if (request.first_iteration() != first_iteration_) {
    Fail(FailureKind::kDisagreed, rank,
         absl::StrCat("would start at iteration ", request.first_iteration(), ", but its epoch starts at ",
                      first_iteration_, ": give every worker the same checkpoint"));
  }
  return Registration{rank, epoch_, opens};
}

void Membership::Fail(FailureKind kind, uint32_t rank, const std::string& what) {
  failure_.Add(kind, rank, absl::StrCat(NameOf(rank), " ", what));
}

absl::Status Membership::Check(const WorkerKey& key) const {
  if (key.rank >= members_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", key.rank, ", but the job has ", members_.size(), " ranks"));
  }
  if (key.epoch != epoch_) {
    return absl::AbortedError(
        absl::StrCat("epoch ", key.epoch, " is stale, the job is in epoch ", epoch_,
                     last_failure_.empty() ? std::string()
                                           : absl::StrCat(" (the one before it failed: ", last_failure_, ")"),
                     ": register again with a new incarnation"));
  }
  const auto& member = members_[key.rank];
  if (!member.has_value() || member->incarnation != key.incarnation) {
    return absl::AbortedError(absl::StrCat(
        "incarnation ", key.incarnation, " is stale: ",
        member.has_value() ? NameOf(key.rank) : absl::StrCat("nobody (rank ", key.rank, " is free)"),
        " holds the rank in epoch ", epoch_));
  }
  return absl::OkStatus();
}

absl::Status Membership::Heartbeat(const v1::HeartbeatRequest& request, bool finished, absl::Time now) {
  PENSTOCK_RETURN_IF_ERROR(Check({request.rank(), request.incarnation(), request.epoch()}));
  Member& member = *members_[request.rank()];
  member.last_heartbeat = now;
  if (request.rank() == 0 && rendezvous_address_.empty()) rendezvous_address_ = request.rendezvous_address();
  if (finished) {
    if (request.leaving()) members_[request.rank()].reset();
    return absl::OkStatus();
  }
  if (!request.failure().empty()) {
    Fail(FailureKind::kReported, request.rank(),
         absl::StrCat("reported: ", request.failure().substr(0, kMaxFailureBytes)));
  } else if (request.leaving() && !member.knows_failure) {
    Fail(FailureKind::kLeft, request.rank(), "left before the job was finished");
  }
  return absl::OkStatus();
}

v1::HeartbeatResponse Membership::Answer(uint32_t rank, bool finished) {
  v1::HeartbeatResponse response;
  if (finished) {
    response.set_state(v1::EPOCH_STATE_FINISHED);
  } else if (failed()) {
    members_[rank]->knows_failure = true;
    response.set_state(v1::EPOCH_STATE_FAILED);
    response.set_failure(failure());
  } else if (ready()) {
    response.set_state(v1::EPOCH_STATE_READY);
    for (const auto& member : members_) response.add_hosts(member->host);
    response.set_rendezvous_address(rendezvous_address_);
  } else {
    response.set_state(v1::EPOCH_STATE_FORMING);
  }
  return response;
}

bool Membership::Expire(absl::Time now) {
  bool changed = false;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    const auto& member = members_[rank];
    if (!member.has_value() || member->knows_failure || failure_.Knows(rank)) continue;
    const absl::Duration silence = now - member->last_heartbeat;
    if (silence <= timeout_) continue;
    Fail(FailureKind::kLost, rank,
         absl::StrFormat("was lost: no heartbeat for %.1f s", absl::ToDoubleSeconds(silence)));
    changed = true;
  }
  return changed;
}

std::vector<v1::WorkerStatus> Membership::Workers(absl::Time now) const {
  std::vector<v1::WorkerStatus> workers;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (!members_[rank].has_value()) continue;
    v1::WorkerStatus& worker = workers.emplace_back();
    worker.set_rank(rank);
    worker.set_incarnation(members_[rank]->incarnation);
    worker.set_host(members_[rank]->host);
    worker.set_heartbeat_age_ms(absl::ToInt64Milliseconds(now - members_[rank]->last_heartbeat));
  }
  return workers;
}

}  // namespace penstock
