#include "planner/service/engine/planning_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/background_thread.h"

namespace penstock {
namespace {

// How often a class that waits is passed over before it is next.
constexpr std::array<int, kPlanningClasses> kPatience = {0, 3, 7};
// Turns that a task is passed over for want of memory before nothing else begins.
constexpr int kMostWithoutRoom = 16;

size_t IndexOf(PlanningClass kind) { return static_cast<size_t>(kind); }

}  // namespace

absl::Status PlanningTicket::status() const {
  switch (cause_.load()) {
    case Cause::kNone:
      break;
    case Cause::kCancelled:
      return absl::CancelledError("the client cancelled, or its deadline is over");
    case Cause::kLimit:
      return absl::DeadlineExceededError(absl::StrCat(
          "planning was stopped after ", absl::FormatDuration(work_.limit),
          ", the limit of this planner (--planning-limit-seconds): plan fewer samples, stages or ranks at "
          "once, or with a lower job.planning.effort"));
    case Cause::kMemory:
      return absl::ResourceExhaustedError(
          "planning was stopped because the planner ran out of memory (--memory): plan fewer samples, stages "
          "or "
          "ranks at once, or give the planner more");
    case Cause::kShutdown:
      return absl::UnavailableError("the planner stops; try again");
  }
  return absl::OkStatus();
}

void PlanningTicket::Stop(Cause cause) {
  Cause none = Cause::kNone;
  cause_.compare_exchange_strong(none, cause);
  flag_.Set();
}

PlanningPool::PlanningPool(int threads, size_t capacity, const SteadyClock* clock, int64_t memory_bytes,
                           Computed computed)
    : capacity_(capacity),
      threads_of_all_(static_cast<size_t>(threads)),
      shared_threads_(static_cast<size_t>(std::max(1, threads - 1))),
      clock_(clock),
      memory_bytes_(memory_bytes),
      computed_(std::move(computed)) {
  for (int i = 0; i < threads + 1; ++i) threads_.emplace_back([this] { Work(); });
}

PlanningPool::~PlanningPool() { Shutdown(absl::ZeroDuration()); }

size_t PlanningPool::WaitingLocked() const {
  size_t waiting = 0;
  for (const Line& line : lines_) waiting += line.waiting;
  return waiting;
}

bool PlanningPool::TryReserve(PlanningClass kind, const std::string& owner, size_t count) {
  MutexLock lock(&mutex_);
  size_t taken = 0;
  for (const Line& line : lines_) taken += line.waiting + line.reserved;
  if (stopped_ || taken + count > capacity_) return false;
  Line& line = lines_[IndexOf(kind)];
  const size_t most_what_ifs = std::max<size_t>(1, capacity_ / 2);
  if (kind == PlanningClass::kWhatIf && line.waiting + line.reserved + count > most_what_ifs) return false;
  const auto found = line.owners.find(owner);
  const size_t own = found == line.owners.end() ? 0 : found->second.tasks.size() + found->second.reserved;
  if (count == 0) return true;
  if (own + count > most_of_owner()) return false;
  line.owners[owner].reserved += count;
  line.reserved += count;
  return true;
}

void PlanningPool::ReleaseLocked(PlanningClass kind, const std::string& owner, size_t count) {
  if (count == 0) return;
  Line& line = lines_[IndexOf(kind)];
  line.reserved -= count;
  const auto found = line.owners.find(owner);
  found->second.reserved -= count;
  if (found->second.reserved == 0 && found->second.tasks.empty()) line.owners.erase(found);
}

void PlanningPool::Release(PlanningClass kind, const std::string& owner, size_t count) {
  MutexLock lock(&mutex_);
  ReleaseLocked(kind, owner, count);
}

PlanningTicketPtr PlanningPool::Run(PlanningWork work, Task task) {
  auto ticket = std::make_shared<PlanningTicket>(std::move(work));
  {
    MutexLock lock(&mutex_);
    const std::string& owner = ticket->work().owner;
    ReleaseLocked(ticket->work().kind, owner, 1);
    if (!stopped_) {
      Line& line = lines_[IndexOf(ticket->work().kind)];
      TurnQueue<Entry>& tasks = line.owners[owner].tasks;
      if (tasks.empty()) line.owners[owner].turn = ++line.turns;
      tasks.Push(ticket->work().job, {.ticket = ticket, .task = std::move(task)});
      ++line.waiting;
      changed_.SignalAll();
      return ticket;
    }
  }
  ticket->Stop(PlanningTicket::Cause::kShutdown);
  task(*ticket);
  return ticket;
}

bool PlanningPool::RemoveLocked(const PlanningTicketPtr& ticket, Entry* entry) {
  Line& line = lines_[IndexOf(ticket->work().kind)];
  const auto owner = line.owners.find(ticket->work().owner);
  if (owner == line.owners.end()) return false;
  TurnQueue<Entry>& tasks = owner->second.tasks;
  std::optional<Entry> found =
      tasks.Remove(ticket->work().job, [&](const Entry& one) { return one.ticket == ticket; });
  if (!found.has_value()) return false;
  *entry = *std::move(found);
  --line.waiting;
  if (tasks.empty() && owner->second.reserved == 0) line.owners.erase(owner);
  return true;
}

void PlanningPool::Cancel(const PlanningTicketPtr& ticket) {
  ticket->Stop(PlanningTicket::Cause::kCancelled);
  Entry entry;
  {
    MutexLock lock(&mutex_);
    if (!RemoveLocked(ticket, &entry)) return;
    changed_.SignalAll();  // Shutdown waits for an empty queue
  }
  entry.task(*ticket);
}

void PlanningPool::StopOverdue() {
  const absl::Time now = clock_->Now();
  MutexLock lock(&mutex_);
  for (const Running& running : running_) {
    if (now - running.started >= running.ticket->work().limit) {
      running.ticket->Stop(PlanningTicket::Cause::kLimit);
    }
  }
  // Who was ahead of others may be no more.
  changed_.SignalAll();
}

bool PlanningPool::StopLargest() {
  MutexLock lock(&mutex_);
  const Running* largest = nullptr;
  for (const Running& running : running_) {
    if (!running.ticket->status().ok()) return true;
    if (largest == nullptr || running.ticket->work().bytes > largest->ticket->work().bytes)
      largest = &running;
  }
  if (largest == nullptr) return false;
  largest->ticket->Stop(PlanningTicket::Cause::kMemory);
  return true;
}

size_t PlanningPool::depth() const {
  MutexLock lock(&mutex_);
  return WaitingLocked();
}

bool PlanningPool::HasThreadLocked(size_t kind) const {
  if (kind == IndexOf(PlanningClass::kJobBatch)) return true;
  if (IsShortAloneLocked()) return false;
  size_t others = 0;
  size_t own = 0;
  for (const Running& running : running_) {
    const size_t one = IndexOf(running.ticket->work().kind);
    if (one != IndexOf(PlanningClass::kJobBatch)) ++others;
    if (one == kind) ++own;
  }
  return others < shared_threads_ && own < std::max<size_t>(1, shared_threads_ - 1);
}

bool PlanningPool::HasMemoryLocked(size_t kind) const {
  if (running_.empty()) return true;
  int64_t free = memory_bytes_;
  for (const Running& running : running_) free -= std::min(free, running.ticket->work().bytes);
  const auto next = NextOwnerLocked(kind);
  return next == lines_[kind].owners.end() || next->second.tasks.front().ticket->work().bytes <= free;
}

bool PlanningPool::MayRunLocked(size_t kind) const {
  if (lines_[kind].waiting == 0 || !HasThreadLocked(kind) || !HasMemoryLocked(kind)) return false;
  if (NextOwnerLocked(kind) == lines_[kind].owners.end()) return false;
  for (size_t other = 0; other < kPlanningClasses; ++other) {
    if (other != kind && lines_[other].waiting > 0 && lines_[other].without_room >= kMostWithoutRoom)
      return false;
  }
  return true;
}

size_t PlanningPool::NextClassLocked() const {
  // Who has waited long enough goes first, the least urgent class before the others: its turn is the rarest.
  for (size_t kind = kPlanningClasses; kind-- > 0;) {
    if (MayRunLocked(kind) && lines_[kind].passed_over >= kPatience[kind] && kPatience[kind] > 0) return kind;
  }
  for (size_t kind = 0; kind < kPlanningClasses; ++kind) {
    if (MayRunLocked(kind)) return kind;
  }
  return kPlanningClasses;
}

std::map<std::string, PlanningPool::Owner>::const_iterator PlanningPool::NextOwnerLocked(size_t kind) const {
  const Line& line = lines_[kind];
  return line.shares.Next(line.owners.begin(), line.owners.end(), IsShortAloneLocked());
}

PlanningPool::Entry PlanningPool::TakeLocked(size_t kind, ThreadClock thread) {
  for (size_t other = 0; other < kPlanningClasses; ++other) {
    Line& line = lines_[other];
    line.passed_over = line.waiting > 0 ? line.passed_over + 1 : 0;
    const bool no_room = line.waiting > 0 && HasThreadLocked(other) && !HasMemoryLocked(other);
    line.without_room = no_room ? line.without_room + 1 : 0;
  }
  Line& line = lines_[kind];
  line.passed_over = 0;
  line.without_room = 0;
  const auto owner = line.owners.find(NextOwnerLocked(kind)->first);
  const uint64_t number = line.shares.Begin(owner->first, line.owners.begin(), line.owners.end());
  owner->second.turn = ++line.turns;
  Entry entry = owner->second.tasks.Pop();
  --line.waiting;
  running_.push_back({entry.ticket, number, clock_->Now(), thread, clock_->ComputedBy(thread)});
  if (owner->second.tasks.empty() && owner->second.reserved == 0) line.owners.erase(owner);
  return entry;
}

void PlanningPool::CountComputedLocked() {
  for (const Running& running : running_)
    lines_[IndexOf(running.ticket->work().kind)].shares.SetComputed(running.number, ComputedBy(running));
}

bool PlanningPool::Next(ThreadClock thread, Entry* entry) {
  MutexLock lock(&mutex_);
  CountComputedLocked();
  size_t kind = NextClassLocked();
  for (; kind == kPlanningClasses; kind = NextClassLocked()) {
    if (stopped_ && WaitingLocked() == 0) return false;
    changed_.Wait(&mutex_);
    CountComputedLocked();
  }
  *entry = TakeLocked(kind, thread);
  return true;
}

void PlanningPool::End(const PlanningTicket& ticket, absl::Duration computed) {
  MutexLock lock(&mutex_);
  const auto running = std::find_if(running_.begin(), running_.end(),
                                    [&](const Running& one) { return one.ticket.get() == &ticket; });
  lines_[IndexOf(ticket.work().kind)].shares.End(running->number, computed);
  running_.erase(running);
  changed_.SignalAll();  // others may run now, and Shutdown waits for the last
}

// Calls and the journal go first: each of their answers waits for a few threads to wake up one after the
// other, and behind four threads that compute on one core each of these waits some milliseconds.
void PlanningPool::Work() {
  BecomeBackgroundThread();
  const ThreadClock thread = ClockOfThisThread();
  for (Entry entry; Next(thread, &entry); entry = Entry()) {
    const absl::Duration before = clock_->ComputedBy(thread);
    entry.task(*entry.ticket);
    const absl::Duration computed = clock_->ComputedBy(thread) - before;
    if (computed_ != nullptr) computed_(entry.ticket->work(), computed);
    End(*entry.ticket, computed);
  }
}

std::vector<PlanningPool::Entry> PlanningPool::TakeAllLocked() {
  std::vector<Entry> entries;
  for (Line& line : lines_) {
    for (auto& [name, owner] : line.owners) {
      while (!owner.tasks.empty()) entries.push_back(owner.tasks.Pop());
    }
    std::erase_if(line.owners, [](const auto& owner) { return owner.second.reserved == 0; });
    line.waiting = 0;
  }
  return entries;
}

void PlanningPool::Shutdown(absl::Duration drain) {
  std::vector<Entry> waiting;
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.SignalAll();
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(drain);
    while (WaitingLocked() + running_.size() > 0 && std::chrono::steady_clock::now() < deadline) {
      changed_.WaitWithTimeout(&mutex_, absl::FromChrono(deadline - std::chrono::steady_clock::now()));
    }
    waiting = TakeAllLocked();
    for (const Running& running : running_) running.ticket->Stop(PlanningTicket::Cause::kShutdown);
    changed_.SignalAll();
  }
  for (const Entry& entry : waiting) {
    entry.ticket->Stop(PlanningTicket::Cause::kShutdown);
    entry.task(*entry.ticket);
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace penstock
