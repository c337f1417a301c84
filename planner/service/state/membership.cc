#include "planner/service/state/membership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/secret/incarnation.h"
#include "common/status/status_macros.h"

namespace penstock {

Membership::Membership(uint32_t ranks, const store::v1::Epoch& saved)
    : members_(ranks),
      epoch_(saved.number()),
      first_iteration_(saved.first_iteration()),
      rendezvous_address_(saved.rendezvous_address()),
      secret_(saved.secret()),
      last_failure_(saved.last_failure()),
      replaced_(saved.replaced().begin(), saved.replaced().end()) {
  for (const store::v1::WorkerRegistered& member : saved.members()) {
    members_[member.rank()] = Member{member.incarnation(), member.host()};
  }
  for (const store::v1::WorkerFailed& cause : saved.failures()) failure_.Add(cause);
}

store::v1::Epoch Membership::Save() const {
  store::v1::Epoch saved;
  saved.set_number(epoch_);
  saved.set_first_iteration(first_iteration_);
  saved.set_rendezvous_address(rendezvous_address_);
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (!members_[rank].has_value()) continue;
    store::v1::WorkerRegistered* member = saved.add_members();
    member->set_rank(rank);
    member->set_incarnation(members_[rank]->incarnation);
    member->set_host(members_[rank]->host);
  }
  for (const store::v1::WorkerFailed& cause : failure_.causes()) *saved.add_failures() = cause;
  saved.set_secret(secret_);
  saved.set_last_failure(last_failure_);
  saved.mutable_replaced()->Add(replaced_.begin(), replaced_.end());
  return saved;
}

std::string Membership::NameOf(uint32_t rank) const {
  const Member& member = *members_[rank];
  return absl::StrCat("rank ", rank, " (", member.host, ")");
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

void Membership::OpenEpoch(const store::v1::WorkerRegistered& event) {
  for (auto& member : members_) {
    if (member.has_value()) replaced_.push_back(member->incarnation);
    member.reset();
  }
  while (replaced_.size() > kRememberedIncarnations) replaced_.pop_front();
  last_failure_ = failure_.Describe();
  failure_ = EpochFailure();
  rendezvous_address_.clear();
  secret_ = event.epoch_secret();
  first_iteration_ = event.first_iteration();
  ++epoch_;
}

void Membership::Apply(const store::v1::WorkerRegistered& event) {
  if (event.opens_epoch()) OpenEpoch(event);
  members_[event.rank()] = Member{event.incarnation(), event.host()};
}

absl::StatusOr<uint32_t> Membership::FreeRank(int32_t wanted) const {
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

absl::StatusOr<Membership::Place> Membership::PlaceFor(const v1::RegisterWorkerRequest& request) const {
  if (request.incarnation() == 0)
    return absl::InvalidArgumentError("incarnation is 0: choose a random number");
  if (request.rank() < -1 || request.rank() >= static_cast<int64_t>(members_.size())) {
    return absl::InvalidArgumentError(absl::StrCat("rank is ", request.rank(), ", but the job has ",
                                                   members_.size(), " ranks: 0 to ", members_.size() - 1,
                                                   ", or -1 for any"));
  }
  if (const auto rank = RankOf(request.incarnation()); rank.has_value() && !failed()) {
    return Place{.rank = *rank, .held = true};
  }
  if (WasReplaced(request.incarnation()) || RankOf(request.incarnation()).has_value()) {
    return absl::AbortedError(
        absl::StrCat("incarnation ", request.incarnation(), " belongs to an epoch that is over (",
                     failed() ? failure() : last_failure_, "): register with a new incarnation"));
  }
  // All ranks of a new epoch are free.
  if (epoch_ == 0 || failed()) {
    return Place{.rank = static_cast<uint32_t>(std::max(request.rank(), 0)), .opens_epoch = true};
  }
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t rank, FreeRank(request.rank()));
  return Place{.rank = rank};
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

std::vector<std::string> Membership::hosts() const {
  std::vector<std::string> hosts;
  hosts.reserve(members_.size());
  for (const auto& member : members_) hosts.push_back(member->host);
  return hosts;
}

std::vector<v1::WorkerStatus> Membership::Workers() const {
  std::vector<v1::WorkerStatus> workers;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (!members_[rank].has_value()) continue;
    v1::WorkerStatus& worker = workers.emplace_back();
    worker.set_rank(rank);
    worker.set_incarnation(IncarnationDigest(members_[rank]->incarnation));
    worker.set_host(members_[rank]->host);
  }
  return workers;
}

}  // namespace penstock
