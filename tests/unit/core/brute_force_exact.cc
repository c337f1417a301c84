#include "tests/unit/core/brute_force_exact.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/comm/build_programs.h"
#include "planner/core/schedule/list_scheduler.h"
#include "planner/core/schedule/pipeline_timeline.h"
#include "tests/support/pass_lists.h"
#include "tests/unit/core/brute_force_bound.h"
#include "tests/unit/core/event_memory.h"

namespace penstock::core {
namespace {

// A pass that a rank could run next.
struct Candidate {
  Pass pass;
  int64_t start_ns = 0;
};

class ExactSearch {
 public:
  ExactSearch(const CostModel& costs, const SmallPipeline& pipeline, int64_t limit_ns, bool any,
              int64_t* nodes);

  // Looks for schedules that end before all known ones; none ends before `least_ns`.
  void Run(int64_t least_ns);
  // A schedule from elsewhere: the best, if it fits.
  void Offer(const SmallSchedule& schedule);
  const SmallSchedule& best() const { return best_; }

 private:
  size_t Index(int m, int s) const { return replica_.costs.at(m, s); }
  int RankOf(int s) const { return pipeline_.position_of_stage[s]; }
  bool Satisfied() const { return best_.found && (any_ || best_.end_ns <= least_ns_); }

  void PrepareReplica();
  void PrepareMemory();
  void Choose(int m, int s, uint8_t choice);
  // Lets the product run what is decided, and fills the times of `state` from that.
  void RunTimeline(ScheduleState* state);
  // The next pass of a micro-batch on a stage; its start is kNever before its data is known to arrive.
  Candidate Next(const ScheduleState& state, int m, int s) const;
  // Those of the first rank that has something to decide, at the earliest moment.
  std::vector<Candidate> Candidates(const ScheduleState& state) const;
  void Visit(ScheduleState state);
  void Run(const ScheduleState& state, const Candidate& candidate);
  // Keeps what later decisions, which are all made at `now_ns` or after, cannot change.
  void ForgetWhatMayChange(int64_t now_ns, ScheduleState* state) const;
  // Whether what is decided at `now_ns` fits.
  bool Fits(int64_t now_ns);
  bool Fits(absl::Span<const PipelineEvent> events) const;
  void Report();

  const CostModel& costs_;
  const SmallPipeline& pipeline_;
  int64_t limit_ns_;
  bool any_;
  int64_t& nodes_;
  int64_t least_ns_ = 0;
  ScheduleBound bound_;
  // Whether recompute can help on a rank.
  std::array<bool, kMaxRanks> memory_may_bind_ = {};
  // Of the decisions so far: `replica_.passes` is `order_` by rank.
  ReplicaPipeline replica_;
  std::vector<Pass> order_;
  std::vector<uint8_t> choices_;
  PipelineTimeline timeline_;
  std::vector<PipelineEvent> events_;
  SmallSchedule best_;
};

ExactSearch::ExactSearch(const CostModel& costs, const SmallPipeline& pipeline, int64_t limit_ns, bool any,
                         int64_t* nodes)
    : costs_(costs),
      pipeline_(pipeline),
      limit_ns_(limit_ns),
      any_(any),
      nodes_(*nodes),
      bound_(pipeline),
      choices_(pipeline.passes.size(), 0) {
  PrepareReplica();
  PrepareMemory();
}

void ExactSearch::PrepareReplica() {
  PipelineCosts& times = replica_.costs;
  times.Resize(pipeline_.stages, pipeline_.micro_batches);
  times.positions = pipeline_.positions;
  times.position_of_stage = pipeline_.position_of_stage;
  replica_.recompute.resize(pipeline_.passes.size());
  for (size_t i = 0; i < pipeline_.passes.size(); ++i) {
    const SmallPass& pass = pipeline_.passes[i];
    times.forward_ns[i] = pass.forward_ns;
    times.weight_ns[i] = pass.weight_ns;
    times.transfer_ns[i] = pass.transfer_ns;
    replica_.memory.push_back(pass.memory);
  }
}

// The most that can be there at once: each micro-batch with the buffers of both its ways, and the peak of one
// backward pass.
void ExactSearch::PrepareMemory() {
  for (int rank = 0; rank < pipeline_.positions; ++rank) {
    int64_t bytes = 0;
    int64_t peak = 0;
    for (int m = 0; m < pipeline_.micro_batches; ++m) {
      for (int s = 0; s < pipeline_.stages; ++s) {
        if (RankOf(s) != rank) continue;
        const SmallPass& pass = pipeline_.at(m, s);
        const int64_t stored = costs_.StoredBytes(s, pass.memory, pass.choices.front().recompute);
        bytes += std::max(stored, costs_.PutAsideBytes(s, pass.memory)) + pass.memory.tokens +
                 2 * (pass.memory.input + pass.memory.output);
        peak = std::max(peak, pass.memory.peak);
      }
    }
    memory_may_bind_[rank] = bytes + peak > pipeline_.available_bytes[rank];
  }
}

void ExactSearch::Choose(int m, int s, uint8_t choice) {
  const size_t i = Index(m, s);
  choices_[i] = choice;
  replica_.costs.backward_ns[i] = pipeline_.passes[i].choices[choice].backward_ns;
  replica_.recompute[i] = pipeline_.passes[i].choices[choice].recompute;
}

void ExactSearch::Offer(const SmallSchedule& schedule) {
  order_ = schedule.order;
  for (int m = 0; m < pipeline_.micro_batches; ++m) {
    for (int s = 0; s < pipeline_.stages; ++s) Choose(m, s, schedule.choices[Index(m, s)]);
  }
  ScheduleState state;
  RunTimeline(&state);
  Report();
  order_.clear();
}

void ExactSearch::Run(int64_t least_ns) {
  least_ns_ = least_ns;
  if (!Satisfied()) Visit(ScheduleState());
}

void ExactSearch::RunTimeline(ScheduleState* state) {
  replica_.passes = ByRank(order_, pipeline_.position_of_stage, pipeline_.positions);
  timeline_.Run(replica_.costs, replica_.passes);
  state->free_ns.fill(0);
  state->end_ns = 0;
  for (const PipelineEvent& event : timeline_.events()) {
    const size_t i = Index(event.micro_batch, event.stage);
    if (event.kind == EventKind::kTransferEnd) {
      (event.gradient ? state->gradient_ns : state->activation_ns)[i] = event.time_ns;
    }
    if (event.kind != EventKind::kPassEnd) continue;
    const int s = event.stage;
    state->free_ns[RankOf(s)] = event.time_ns;
    if (event.pass == PassKind::kForward) {
      state->forward_end[i] = event.time_ns;
      if (s + 1 < pipeline_.stages && RankOf(s + 1) == RankOf(s)) state->activation_ns[i] = event.time_ns;
    } else if (event.pass != PassKind::kBackwardWeight) {
      state->input_end[i] = event.time_ns;
      if (s > 0 && RankOf(s - 1) == RankOf(s)) state->gradient_ns[i - 1] = event.time_ns;
    }
    if (event.pass == PassKind::kBackward || event.pass == PassKind::kBackwardWeight) {
      state->end_ns = std::max(state->end_ns, event.time_ns + pipeline_.reduce_ns[s]);
    }
  }
}

Candidate ExactSearch::Next(const ScheduleState& state, int m, int s) const {
  const size_t i = Index(m, s);
  const auto at = [&](PassKind kind, int64_t ready) {
    return Candidate{{kind, s, m}, ready < 0 ? kNever : std::max(ready, state.free_ns[RankOf(s)])};
  };
  switch (state.phase[i]) {
    case kWaiting:
      return at(PassKind::kForward, s == 0 ? 0 : state.activation_ns[i - 1]);
    case kForwardDone:
      return at(PassKind::kBackward, s + 1 == pipeline_.stages ? state.forward_end[i] : state.gradient_ns[i]);
    case kInputDone:
      return at(PassKind::kBackwardWeight, state.input_end[i]);
    default:
      return at(PassKind::kBackwardWeight, -1);
  }
}

std::vector<Candidate> ExactSearch::Candidates(const ScheduleState& state) const {
  std::vector<Candidate> earliest;
  for (int m = 0; m < pipeline_.micro_batches; ++m) {
    for (int s = 0; s < pipeline_.stages; ++s) {
      const Candidate next = Next(state, m, s);
      if (next.start_ns == kNever || state.put_off[Index(m, s)]) continue;
      if (!earliest.empty()) {
        const auto before = std::pair(earliest[0].start_ns, RankOf(earliest[0].pass.stage));
        const auto now = std::pair(next.start_ns, RankOf(s));
        if (now > before) continue;
        if (now < before) earliest.clear();
      }
      earliest.push_back(next);
    }
  }
  return earliest;
}

void ExactSearch::ForgetWhatMayChange(int64_t now_ns, ScheduleState* state) const {
  for (int rank = 0; rank < pipeline_.positions; ++rank) {
    state->free_ns[rank] = std::max(state->free_ns[rank], now_ns);
    state->free_ns[pipeline_.positions + rank] = now_ns;
  }
  for (int m = 0; m < pipeline_.micro_batches; ++m) {
    for (int s = 0; s + 1 < pipeline_.stages; ++s) {
      const size_t i = Index(m, s);
      const int64_t transfer = pipeline_.passes[i].transfer_ns;
      int64_t& link_free = state->free_ns[pipeline_.positions + RankOf(s)];
      for (int64_t* arrival : {&state->activation_ns[i], &state->gradient_ns[i]}) {
        if (*arrival >= now_ns + transfer) *arrival = -1;
        if (transfer > 0) link_free = std::max(link_free, *arrival);
      }
    }
  }
}

bool ExactSearch::Fits(absl::Span<const PipelineEvent> events) const {
  const std::vector<int64_t> peaks = PeakBytes(costs_, replica_, events);
  for (int rank = 0; rank < pipeline_.positions; ++rank) {
    if (peaks[rank] > pipeline_.available_bytes[rank]) return false;
  }
  return true;
}

bool ExactSearch::Fits(int64_t now_ns) {
  // Passes that run now are counted to their end: until then their rank gives nothing back.
  events_.clear();
  for (const PipelineEvent& event : timeline_.events()) {
    const bool of_pass = event.kind == EventKind::kPassStart || event.kind == EventKind::kPassEnd;
    const int64_t since_start = event.kind == EventKind::kTransferEnd
                                    ? replica_.costs.transfer_ns[Index(event.micro_batch, event.stage)]
                                    : 0;
    const bool over = event.time_ns <= now_ns && event.time_ns - since_start < now_ns;
    if (of_pass || over) events_.push_back(event);
  }
  return Fits(events_);
}

void ExactSearch::Visit(ScheduleState state) {
  if (--nodes_ < 0) {
    best_.complete = false;
    return;
  }
  RunTimeline(&state);
  const auto phases_end = state.phase.begin() + pipeline_.passes.size();
  if (std::all_of(state.phase.begin(), phases_end, [](uint8_t phase) { return phase == kDone; })) {
    return Report();
  }
  const std::vector<Candidate> candidates = Candidates(state);
  if (candidates.empty()) return;
  const int64_t now_ns = candidates[0].start_ns;
  ScheduleState known = state;
  ForgetWhatMayChange(now_ns, &known);
  if (bound_.From(known, limit_ns_) >= limit_ns_ || !Fits(now_ns)) return;
  // Backward passes, then forward passes, then weight gradients: usually the best first.
  for (const PassKind kind : {PassKind::kBackward, PassKind::kForward, PassKind::kBackwardWeight}) {
    for (const Candidate& candidate : candidates) {
      if (candidate.pass.kind == kind) Run(state, candidate);
      if (!best_.complete || Satisfied()) return;
    }
  }
  for (const Candidate& candidate : candidates) {
    state.put_off[Index(candidate.pass.micro_batch, candidate.pass.stage)] = true;
  }
  Visit(state);
}

void ExactSearch::Run(const ScheduleState& before, const Candidate& candidate) {
  const int m = candidate.pass.micro_batch;
  const int s = candidate.pass.stage;
  const size_t i = Index(m, s);
  const SmallPass& pass = pipeline_.passes[i];
  ScheduleState state = before;
  for (size_t other = 0; other < pipeline_.passes.size(); ++other) {
    if (RankOf(static_cast<int>(other) % pipeline_.stages) == RankOf(s)) state.put_off[other] = false;
  }
  const auto go_on = [&](PassKind kind, Phase phase) {
    if (!best_.complete || Satisfied()) return;
    state.phase[i] = phase;
    state.choice[i] = choices_[i];
    order_.push_back({kind, s, m});
    Visit(state);
    order_.pop_back();
  };
  switch (candidate.pass.kind) {
    case PassKind::kForward:
      for (uint8_t choice = 0; choice < pass.choices.size(); ++choice) {
        Choose(m, s, choice);
        go_on(PassKind::kForward, kForwardDone);
        if (!memory_may_bind_[RankOf(s)]) break;
      }
      break;
    case PassKind::kBackwardWeight:
      go_on(PassKind::kBackwardWeight, kDone);
      break;
    default:
      if (pipeline_.split && pass.weight_ns > 0) go_on(PassKind::kBackwardInput, kInputDone);
      go_on(PassKind::kBackward, kDone);
  }
}

void ExactSearch::Report() {
  int64_t end = 0;
  std::string text;
  for (const PipelineEvent& event : timeline_.events()) {
    if (event.kind != EventKind::kPassEnd) continue;
    static constexpr const char* kNames[] = {"F", "B", "dX", "dW"};
    const StageRecompute& recompute = replica_.recompute[Index(event.micro_batch, event.stage)];
    absl::StrAppend(&text, "rank ", RankOf(event.stage), " ", kNames[static_cast<int>(event.pass)], " m",
                    event.micro_batch, " s", event.stage, " ends ", event.time_ns, " selective ",
                    recompute.selective, " full ", recompute.full, "\n");
    if (event.pass == PassKind::kForward || event.pass == PassKind::kBackwardInput) continue;
    end = std::max(end, event.time_ns + pipeline_.reduce_ns[event.stage]);
  }
  if (end >= limit_ns_) return;
  if (!Fits(timeline_.events())) return;
  limit_ns_ = end;
  best_.found = true;
  best_.end_ns = end;
  best_.order = order_;
  best_.choices = choices_;
  best_.text = std::move(text);
}

}  // namespace

SmallSchedule BestExactSchedule(const CostModel& costs, const SmallPipeline& pipeline, int64_t limit_ns,
                                bool any, int64_t* nodes) {
  // Quickly where the optimistic optimum fits; else nothing ends before it.
  SmallSchedule optimistic = BestSchedule(pipeline, limit_ns, any, nodes);
  if (!optimistic.complete || !optimistic.found) return optimistic;
  ExactSearch search(costs, pipeline, limit_ns, any, nodes);
  search.Offer(optimistic);
  search.Run(optimistic.end_ns);
  return search.best();
}

int64_t ExactOneForwardOneBackwardEnd(const SmallPipeline& pipeline, const std::vector<int>& order) {
  PipelineCosts costs;
  costs.Resize(pipeline.stages, pipeline.micro_batches);
  costs.positions = pipeline.positions;
  costs.position_of_stage = pipeline.position_of_stage;
  for (int s = 0; s < pipeline.stages; ++s) {
    for (int m = 0; m < pipeline.micro_batches; ++m) {
      const SmallPass& pass = pipeline.at(order[m], s);
      costs.forward_ns[costs.at(m, s)] = pass.forward_ns;
      costs.backward_ns[costs.at(m, s)] = pass.choices.front().backward_ns;
      costs.transfer_ns[costs.at(m, s)] = pass.transfer_ns;
    }
  }
  PipelineTimeline timeline;
  if (!timeline.Run(costs, ListOneForwardOneBackward(costs).passes)) return kInfeasibleNs;
  int64_t end = 0;
  for (const PipelineEvent& event : timeline.events()) {
    if (event.kind != EventKind::kPassEnd) continue;
    end = std::max(end, event.time_ns + pipeline.reduce_ns[event.stage]);
  }
  return end;
}

}  // namespace penstock::core
