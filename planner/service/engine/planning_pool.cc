#include "planner/service/engine/planning_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/process/background_thread.h"
#include "common/sync/thread_name.h"

namespace penstock {
namespace {

// How often a class that waits is passed over before it is next.
constexpr std::array<int, kPlanningClasses> kPatience = {0, 3, 7};
// Turns that a task is passed over for want of memory before nothing else begins.
constexpr int kMostWithoutRoom = 16;
// A turn: what a task computes before others are asked for.
constexpr absl::Duration kTurn = absl::Milliseconds(20);
// Tasks that are paused at a time; each holds a thread. Beyond them tasks run to their end.
constexpr size_t kMostPaused = 16;

size_t IndexOf(PlanningClass kind) { return static_cast<size_t>(kind); }

}  // namespace

PlanningPool::PlanningPool(int threads, size_t capacity, const SteadyClock* clock, int64_t memory_bytes,
                           Computed computed, Begins begins)
    : capacity_(capacity),
      most_running_(static_cast<size_t>(threads)),
      shared_threads_(static_cast<size_t>(std::max(1, threads - 1))),
      clock_(clock),
      memory_(memory_bytes),
      computed_(std::move(computed)),
      begins_(std::move(begins)) {
  for (size_t i = 0; i < most_running_ + kMostPaused; ++i) {
    threads_.emplace_back([this] {
      NameThisThread("planning");
      Work();
    });
  }
}

PlanningPool::~PlanningPool() { Shutdown(absl::ZeroDuration()); }

size_t PlanningPool::WaitingLocked() const {
  size_t waiting = 0;
  for (const Line& line : lines_) waiting += line.waiting;
  return waiting;
}

size_t PlanningPool::PausedLocked() const {
  size_t paused = 0;
  for (const Line& line : lines_) paused += line.paused;
  return paused;
}

void PlanningPool::ForEachBegunLocked(absl::FunctionRef<void(const Begun&)> each) const {
  for (const Begun& running : running_) each(running);
  for (const Line& line : lines_)
    for (const auto& [name, owner] : line.owners)
      for (const Begun& paused : owner.paused) each(paused);
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
  if (found->second.is_gone()) line.owners.erase(found);
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
      if (!line.owners[owner].waits()) line.owners[owner].turn = ++line.turns;
      tasks.Push(ticket->work().job, {.ticket = ticket, .task = std::move(task)});
      ++line.waiting;
      GiveTurnsAnewLocked();
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
  if (owner->second.is_gone()) line.owners.erase(owner);
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
  std::vector<std::pair<PlanningTicketPtr, absl::Duration>> computed;
  {
    MutexLock lock(&mutex_);
    for (Begun& running : running_) {
      if (now - running.started >= running.ticket->work().limit)
        running.ticket->Stop(PlanningTicket::Cause::kLimit);
      computed.emplace_back(running.ticket, TellOf(running));
    }
  }
  if (computed_ == nullptr) return;
  for (const auto& [ticket, time] : computed) computed_(ticket->work(), time);
}

bool PlanningPool::StopLargest() {
  MutexLock lock(&mutex_);
  PlanningTicket* largest = nullptr;
  bool stopped = false;
  ForEachBegunLocked([&](const Begun& task) {
    stopped = stopped || !task.ticket->status().ok();
    if (largest == nullptr || task.ticket->work().bytes > largest->work().bytes) largest = task.ticket.get();
  });
  if (stopped || largest == nullptr) return stopped;
  largest->Stop(PlanningTicket::Cause::kMemory);
  return true;
}

size_t PlanningPool::depth() const {
  MutexLock lock(&mutex_);
  return WaitingLocked();
}

bool PlanningPool::computes() const {
  MutexLock lock(&mutex_);
  return !running_.empty() || PausedLocked() > 0;
}

bool PlanningPool::HasThreadLocked(size_t kind) const {
  if (running_.size() >= most_running_) return false;
  if (kind == IndexOf(PlanningClass::kJobBatch)) return true;
  size_t others = 0;
  size_t own = 0;
  for (const Begun& running : running_) {
    const size_t one = IndexOf(running.ticket->work().kind);
    if (one != IndexOf(PlanningClass::kJobBatch)) ++others;
    if (one == kind) ++own;
  }
  return others < shared_threads_ && own < std::max<size_t>(1, shared_threads_ - 1);
}

PlanningMemory::Room PlanningPool::RoomLocked() const {
  PlanningMemory::Room room = memory_.Whole();
  ForEachBegunLocked([&](const Begun& task) { memory_.Take(task.ticket->work(), &room); });
  return room;
}

bool PlanningPool::IsWaitedForLocked() const {
  return std::ranges::any_of(lines_, [](const Line& line) { return line.without_room >= kMostWithoutRoom; });
}

std::map<std::string, PlanningPool::Owner>::const_iterator PlanningPool::NextOwnerLocked(size_t kind) const {
  const Line& line = lines_[kind];
  const auto first = line.shares.Next(line.owners.begin(), line.owners.end());
  const bool is_waited_for = IsWaitedForLocked();
  const PlanningMemory::Room room = RoomLocked();
  return line.shares.Next(line.owners.begin(), line.owners.end(), [&](const Owner& owner) {
    // Who has begun may go on: that makes room.
    if (!owner.paused.empty()) return true;
    const PlanningWork& work = owner.tasks.front().ticket->work();
    const bool may_begin = !is_waited_for || memory_.WaitsForNobody(work, room) ||
                           (&owner == &first->second && line.without_room >= kMostWithoutRoom);
    return may_begin && memory_.Fits(work, room);
  });
}

bool PlanningPool::MayRunLocked(size_t kind) const {
  return lines_[kind].waits() && HasThreadLocked(kind) && NextOwnerLocked(kind) != lines_[kind].owners.end();
}

size_t PlanningPool::NextClassLocked() const {
  // Who has waited long enough goes first, the least urgent class before the others: its turn is the rarest.
  for (size_t kind = kPlanningClasses; kind-- > 0;) {
    const Line& line = lines_[kind];
    if (kPatience[kind] > 0 && line.passed_over >= kPatience[kind] &&
        line.others_computed >= kPatience[kind] * line.last_turn && MayRunLocked(kind))
      return kind;
  }
  for (size_t kind = 0; kind < kPlanningClasses; ++kind) {
    if (MayRunLocked(kind)) return kind;
  }
  return kPlanningClasses;
}

void PlanningPool::CountTurnLocked(size_t kind) {
  for (Line& line : lines_) line.passed_over = line.waits() ? line.passed_over + 1 : 0;
  lines_[kind].passed_over = 0;
  lines_[kind].others_computed = absl::ZeroDuration();
}

void PlanningPool::CountBeginningLocked() {
  const PlanningMemory::Room room = RoomLocked();
  for (size_t kind = 0; kind < kPlanningClasses; ++kind) {
    Line& line = lines_[kind];
    const auto first = line.shares.Next(line.owners.begin(), line.owners.end());
    const bool has_room = first == line.owners.end() || !first->second.paused.empty() ||
                          !HasThreadLocked(kind) ||
                          memory_.Fits(first->second.tasks.front().ticket->work(), room);
    line.without_room = has_room ? 0 : line.without_room + 1;
  }
}

std::optional<PlanningPool::Entry> PlanningPool::TakeLocked(size_t kind, ThreadClock thread) {
  CountTurnLocked(kind);
  Line& line = lines_[kind];
  const auto owner = line.owners.find(NextOwnerLocked(kind)->first);
  owner->second.turn = ++line.turns;
  std::optional<Entry> entry;
  if (!owner->second.paused.empty()) {
    line.shares.GoOn(line.owners.begin(), line.owners.end());
    Begun& begun = running_.emplace_back(std::move(owner->second.paused.front()));
    owner->second.paused.pop_front();
    --line.paused;
    begun.started += clock_->Now() - begun.paused;
    begun.before_turn = clock_->ComputedBy(begun.thread);
    begun.ticket->flag_.Resume();
  } else {
    CountBeginningLocked();
    const uint64_t number = line.shares.Begin(owner->first, line.owners.begin(), line.owners.end());
    entry = owner->second.tasks.Pop();
    --line.waiting;
    const absl::Duration before = clock_->ComputedBy(thread);
    running_.push_back({.ticket = entry->ticket,
                        .number = number,
                        .thread = thread,
                        .before = before,
                        .before_turn = before,
                        .started = clock_->Now()});
  }
  if (owner->second.is_gone()) line.owners.erase(owner);
  return entry;
}

void PlanningPool::EndTurnLocked(const Begun& task) {
  const size_t kind = IndexOf(task.ticket->work().kind);
  lines_[kind].last_turn = clock_->ComputedBy(task.thread) - task.before_turn;
  for (size_t other = 0; other < kPlanningClasses; ++other)
    if (other != kind && lines_[other].waits()) lines_[other].others_computed += lines_[kind].last_turn;
}

bool PlanningPool::PauseLocked(size_t running) {
  Begun task = std::move(running_[running]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(running));
  const size_t kind = IndexOf(task.ticket->work().kind);
  const std::string name = task.ticket->work().owner;
  Line& line = lines_[kind];
  EndTurnLocked(task);
  task.paused = clock_->Now();
  Owner& owner = line.owners[name];
  const PlanningTicketPtr ticket = task.ticket;
  owner.paused.push_back(std::move(task));
  ++line.paused;
  const size_t next = NextClassLocked();
  const bool others = next != kPlanningClasses &&
                      (next != kind || NextOwnerLocked(kind)->first != name || owner.paused.size() > 1);
  if (others) {
    ticket->flag_.Pause();
    return true;
  }
  running_.insert(running_.begin() + static_cast<std::ptrdiff_t>(running), std::move(owner.paused.back()));
  owner.paused.pop_back();
  --line.paused;
  running_[running].before_turn = clock_->ComputedBy(running_[running].thread);
  if (owner.is_gone()) line.owners.erase(name);
  return false;
}

void PlanningPool::GiveTurnsAnewLocked() {
  CountComputedLocked();
  // A thread is free for what is next.
  if (NextClassLocked() != kPlanningClasses) return;
  for (size_t i = 0; i < running_.size() && PausedLocked() < kMostPaused;) {
    const bool is_over = clock_->ComputedBy(running_[i].thread) - running_[i].before_turn >= kTurn;
    if (!is_over || !PauseLocked(i)) ++i;
  }
}

void PlanningPool::CountComputedLocked() {
  for (const Begun& running : running_)
    lines_[IndexOf(running.ticket->work().kind)].shares.SetComputed(running.number, ComputedBy(running));
}

bool PlanningPool::Next(ThreadClock thread, Entry* entry) {
  MutexLock lock(&mutex_);
  while (true) {
    CountComputedLocked();
    const size_t kind = NextClassLocked();
    if (kind != kPlanningClasses) {
      std::optional<Entry> begun = TakeLocked(kind, thread);
      if (!begun.has_value()) continue;
      *entry = *std::move(begun);
      return true;
    }
    if (stopped_ && WaitingLocked() + PausedLocked() == 0) return false;
    WaitLocked();
  }
}

void PlanningPool::WaitLocked() {
  if (has_timekeeper_ || WaitingLocked() + PausedLocked() == 0) {
    changed_.Wait(&mutex_);
    return;
  }
  has_timekeeper_ = true;
  changed_.WaitWithTimeout(&mutex_, kTurn);
  has_timekeeper_ = false;
  GiveTurnsAnewLocked();
  // Another one keeps the time while this one computes.
  changed_.SignalAll();
}

PlanningPool::Begun PlanningPool::TakeEndedLocked(const PlanningTicket& ticket) {
  const auto is_it = [&](const Begun& one) { return one.ticket.get() == &ticket; };
  const auto running = std::find_if(running_.begin(), running_.end(), is_it);
  Begun ended;
  if (running != running_.end()) {
    EndTurnLocked(*running);
    ended = std::move(*running);
    running_.erase(running);
    return ended;
  }
  // It was paused and did not see it, or was stopped.
  Line& line = lines_[IndexOf(ticket.work().kind)];
  const auto owner = line.owners.find(ticket.work().owner);
  const auto paused = std::find_if(owner->second.paused.begin(), owner->second.paused.end(), is_it);
  ended = std::move(*paused);
  owner->second.paused.erase(paused);
  --line.paused;
  if (owner->second.is_gone()) line.owners.erase(owner);
  return ended;
}

void PlanningPool::End(const PlanningTicket& ticket) {
  MutexLock lock(&mutex_);
  const Begun ended = TakeEndedLocked(ticket);
  lines_[IndexOf(ticket.work().kind)].shares.End(ended.number, ComputedBy(ended));
  changed_.SignalAll();  // others may run now, and Shutdown waits for the last
}

absl::Duration PlanningPool::TellOf(Begun& task) const {
  const absl::Duration computed = ComputedBy(task);
  return computed - std::exchange(task.told, computed);
}

absl::Duration PlanningPool::TellOf(const PlanningTicket& ticket) {
  MutexLock lock(&mutex_);
  absl::Duration untold;
  const auto tell = [&](Begun& one) {
    if (one.ticket.get() == &ticket) untold = TellOf(one);
  };
  std::ranges::for_each(running_, tell);
  Line& line = lines_[IndexOf(ticket.work().kind)];
  if (const auto owner = line.owners.find(ticket.work().owner); owner != line.owners.end())
    std::ranges::for_each(owner->second.paused, tell);
  return untold;
}

// Calls and the journal go first: each of their answers waits for a few threads to wake up one after the
// other, and behind four threads that compute on one core each of these waits some milliseconds.
void PlanningPool::Work() {
  BecomeBackgroundThread();
  const ThreadClock thread = ClockOfThisThread();
  for (Entry entry; Next(thread, &entry); entry = Entry()) {
    if (begins_ != nullptr) begins_();
    {
      const core::PausesHere pauses(&entry.ticket->flag_);
      entry.task(*entry.ticket);
    }
    if (computed_ != nullptr) computed_(entry.ticket->work(), TellOf(*entry.ticket));
    End(*entry.ticket);
  }
}

std::vector<PlanningPool::Entry> PlanningPool::TakeAllLocked() {
  std::vector<Entry> entries;
  for (Line& line : lines_) {
    for (auto& [name, owner] : line.owners) {
      while (!owner.tasks.empty()) entries.push_back(owner.tasks.Pop());
    }
    std::erase_if(line.owners, [](const auto& owner) { return owner.second.is_gone(); });
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
    while (WaitingLocked() + PausedLocked() + running_.size() > 0 &&
           std::chrono::steady_clock::now() < deadline) {
      changed_.WaitWithTimeout(&mutex_, absl::FromChrono(deadline - std::chrono::steady_clock::now()));
    }
    waiting = TakeAllLocked();
    ForEachBegunLocked([](const Begun& task) { task.ticket->Stop(PlanningTicket::Cause::kShutdown); });
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
