#include "planner/service/leadership/leadership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "common/sync/thread_name.h"
#include "penstock/client/standby.h"

namespace penstock {
namespace {

using ProcessClock = std::chrono::steady_clock;

constexpr int kRenewalsPerLease = 6;
// After a renewal that failed.
constexpr absl::Duration kRenewAgain = absl::Milliseconds(200);
// The server's clock has passed the end of the lease when it is looked at.
constexpr absl::Duration kJustAfter = absl::Milliseconds(5);

absl::Status Standby(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("this planner is a standby: ", why));
}

}  // namespace

Leadership::Leadership(LeadershipOptions options, OpenLease open_lease, Candidate* candidate)
    : options_(std::move(options)),
      open_lease_(std::move(open_lease)),
      candidate_(candidate),
      pause_(options_.look_again) {}

Leadership::~Leadership() { Stop(); }

void Leadership::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Leadership::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  candidate_->Abandon(kEveryTerm);
  if (thread_.joinable()) thread_.join();
}

void Leadership::Lose(const absl::Status& why) {
  Term term = 0;
  {
    MutexLock lock(&mutex_);
    if (!reigns_ || !lost_.ok()) return;
    lost_ = why;
    term = term_;
    changed_.SignalAll();
  }
  candidate_->Abandon(term);
}

bool Leadership::Wait(absl::Duration time) {
  const SteadyTime end = ProcessClock::now() + absl::ToChronoNanoseconds(time);
  MutexLock lock(&mutex_);
  while (!stopping_ && ProcessClock::now() < end) {
    changed_.WaitWithTimeout(&mutex_, absl::FromChrono(end - ProcessClock::now()));
  }
  return !stopping_;
}

void Leadership::Run() {
  NameThisThread("leadership");
  while (Wait(Turn())) {
  }
}

void Leadership::Follow(const absl::Status& why) {
  if (why == told_) return;
  told_ = why;
  LogInfo("planner follows", {{"reason", why.message()}});
  candidate_->Follow(why);
}

absl::Duration Leadership::Turn() {
  absl::Duration look_again = options_.look_again;
  const absl::StatusOr<Term> term = TryToAcquire(&look_again);
  if (!term.ok()) {
    Follow(term.status());
    return look_again;
  }
  const absl::Status end = Reign(*term);
  if (end.ok()) return absl::ZeroDuration();
  told_ = absl::OkStatus();
  Follow(Standby(absl::StrCat("it does not lead any more: ", end.message(), "; try again")));
  return pause_;
}

// A lease of this name which is not of this process: another's, which was given the same name. Not so at the
// start: then it is that of the process before, and need not be waited for.
bool Leadership::IsHeldByAnother(const LeaseState& state) const {
  if (state.holder.empty() || state.remaining <= absl::ZeroDuration()) return false;
  MutexLock lock(&mutex_);
  return state.holder != options_.name || (term_ != 0 && state.term != term_);
}

absl::Status Leadership::WhyNot(const LeaseState& state) const {
  if (state.holder == options_.name) {
    return Standby(absl::StrCat("another process leads under its name '", state.holder,
                                "': give each planner an --advertise of its own"));
  }
  return WithLeader(Standby(absl::StrCat("'", state.holder,
                                         "' leads; ask there, or name all planners in --planner "
                                         "a:7070,b:7070")),
                    state.holder);
}

absl::StatusOr<Term> Leadership::TryToAcquire(absl::Duration* look_again) {
  if (lease_ == nullptr) {
    absl::StatusOr<std::unique_ptr<Lease>> opened = open_lease_();
    if (!opened.ok()) return Standby(absl::StrCat("who leads is not known: ", opened.status().message()));
    lease_ = *std::move(opened);
  }
  const absl::StatusOr<LeaseState> state = lease_->Read();
  if (!state.ok()) return Standby(absl::StrCat("who leads is not known: ", state.status().message()));
  if (IsHeldByAnother(*state)) {
    *look_again = std::min(*look_again, state->remaining + kJustAfter);
    return WhyNot(*state);
  }
  // Two that try at a time: the other was first.
  return Acquire(*state);
}

absl::StatusOr<Term> Leadership::Acquire(const LeaseState& state) {
  const SteadyTime start = ProcessClock::now();
  const absl::StatusOr<Term> term = lease_->Acquire(options_.name);
  if (!term.ok()) return Standby(absl::StrCat("nobody leads: ", term.status().message()));
  LogInfo("lease acquired", {{"term", *term}, {"name", options_.name}, {"from", state.holder}});
  {
    MutexLock lock(&mutex_);
    term_ = *term;
    reigns_ = true;
    lost_ = absl::OkStatus();
    renewal_failure_ = absl::OkStatus();
  }
  Extend(start);
  return term;
}

void Leadership::Extend(SteadyTime start) {
  const SteadyTime end = start + absl::ToChronoNanoseconds(options_.time_to_live);
  {
    MutexLock lock(&mutex_);
    valid_until_ = end;
    renewal_failure_ = absl::OkStatus();
  }
  candidate_->LeadUntil(end);
}

absl::Status Leadership::Reign(Term term) {
  std::thread keeper([this] { KeepLease(); });
  absl::Status end = candidate_->Lead(term);
  if (end.ok()) {
    LogInfo("planner leads", {{"term", term}, {"name", options_.name}});
    pause_ = options_.look_again;
    end = AwaitEnd();
    LogInfo("planner steps down", {{"term", term}, {"reason", end.ok() ? "it stops" : end.ToString()}});
    candidate_->StepDown(end);
  } else {
    LogError("planner cannot lead", {{"term", term}, {"reason", end.ToString()}});
    pause_ = std::min(pause_ * 2, options_.longest_pause);
  }
  bool may_release = false;
  {
    MutexLock lock(&mutex_);
    reigns_ = false;
    // A store that does not answer would not now.
    may_release = lost_.ok() && renewal_failure_.ok();
    changed_.SignalAll();
  }
  keeper.join();
  if (!may_release) return end;
  if (const absl::Status released = lease_->Release(); !released.ok()) {
    LogWarning("the lease could not be given up", {{"reason", released.ToString()}});
  }
  return end;
}

absl::Status Leadership::AwaitEnd() {
  MutexLock lock(&mutex_);
  while (!stopping_ && lost_.ok() && ProcessClock::now() < valid_until_) {
    changed_.WaitWithTimeout(&mutex_, absl::FromChrono(valid_until_ - ProcessClock::now()));
  }
  if (stopping_) return absl::OkStatus();
  if (lost_.ok()) {
    lost_ = absl::UnavailableError(
        absl::StrCat("its lease could not be renewed for ", absl::FormatDuration(options_.time_to_live),
                     renewal_failure_.ok() ? "" : ": ", renewal_failure_.message()));
  }
  return lost_;
}

bool Leadership::expired() const {
  MutexLock lock(&mutex_);
  return ProcessClock::now() >= valid_until_;
}

bool Leadership::AwaitRenewal(absl::Duration pause) {
  const SteadyTime end = ProcessClock::now() + absl::ToChronoNanoseconds(pause);
  MutexLock lock(&mutex_);
  while (reigns_ && lost_.ok() && ProcessClock::now() < end) {
    changed_.WaitWithTimeout(&mutex_, absl::FromChrono(end - ProcessClock::now()));
  }
  return reigns_ && lost_.ok();
}

void Leadership::KeepLease() {
  NameThisThread("lease");
  const absl::Duration interval = options_.time_to_live / kRenewalsPerLease;
  absl::Duration pause = interval;
  while (AwaitRenewal(pause)) {
    const SteadyTime start = ProcessClock::now();
    const absl::Status renewed = lease_->Renew();
    pause = renewed.ok() ? interval : std::min(interval, kRenewAgain);
    if (renewed.ok()) {
      Extend(start);
      continue;
    }
    LogWarning("the lease was not renewed", {{"reason", renewed.ToString()}});
    {
      MutexLock lock(&mutex_);
      renewal_failure_ = renewed;
    }
    if (absl::IsAborted(renewed) || expired()) Lose(renewed);
  }
}

}  // namespace penstock
