#include "tests/unit/core/brute_force_schedule.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "tests/unit/core/brute_force_bound.h"

namespace penstock::core {
namespace {

// The last two are transfers over the boundary above a stage.
enum class Kind : uint8_t { kForward, kWhole, kInput, kWeight, kActivation, kGradient };

struct Move {
  int micro_batch = 0;
  int stage = 0;
  Kind kind = Kind::kForward;
  uint8_t choice = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class Search {
 public:
  Search(const SmallPipeline& pipeline, int64_t limit_ns, bool any, int64_t* nodes)
      : pipeline_(pipeline), limit_ns_(limit_ns), any_(any), nodes_(*nodes), bound_(pipeline) {
    PrepareMemory();
  }

  SmallSchedule Run() {
    ScheduleState state;
    if (bound_.From(state, limit_ns_) < limit_ns_) Visit(state);
    return best_;
  }

  int64_t RootBound() { return bound_.From(ScheduleState(), kNever); }

 private:
  int Index(int m, int s) const { return m * pipeline_.stages + s; }
  int RankOf(int s) const { return pipeline_.position_of_stage[s]; }
  // Of the boundary above a stage.
  int LinkOf(int s) const { return pipeline_.positions + RankOf(s); }
  int MachineOf(const Move& move) const {
    return move.kind >= Kind::kActivation ? LinkOf(move.stage) : RankOf(move.stage);
  }

  void PrepareMemory();
  void AddMoves(const ScheduleState& state, int m, int s, std::vector<Move>* moves) const;
  void Visit(const ScheduleState& state);
  ScheduleState Apply(const ScheduleState& state, const Move& move) const;
  void Descend(const ScheduleState& state, const Move& move);
  void Report(const ScheduleState& state);

  const SmallPipeline& pipeline_;
  int64_t limit_ns_;
  bool any_;
  int64_t& nodes_;
  ScheduleBound bound_;
  SmallSchedule best_;
  std::vector<Move> path_;
  std::array<bool, kMaxRanks> memory_binds_ = {};
};

void Search::PrepareMemory() {
  for (int rank = 0; rank < pipeline_.positions; ++rank) {
    int64_t kept = 0;
    int64_t passing = 0;
    for (int m = 0; m < pipeline_.micro_batches; ++m) {
      for (int s = 0; s < pipeline_.stages; ++s) {
        if (RankOf(s) != rank) continue;
        const SmallPass& pass = pipeline_.at(m, s);
        kept += std::max(pass.choices.front().kept_bytes, pass.put_aside_bytes);
        passing = std::max({passing, pass.forward_bytes, pass.backward_bytes + pass.received_bytes});
      }
    }
    memory_binds_[rank] = kept + passing > pipeline_.available_bytes[rank];
  }
}

void Search::AddMoves(const ScheduleState& state, int m, int s, std::vector<Move>* moves) const {
  const int i = Index(m, s);
  const int rank = RankOf(s);
  const SmallPass& pass = pipeline_.at(m, s);
  const bool last = s + 1 == pipeline_.stages;
  const auto add = [&](Kind kind, uint8_t choice, int64_t ready, int64_t duration) {
    Move move{m, s, kind, choice, 0, 0};
    move.start_ns = std::max(ready, state.free_ns[MachineOf(move)]);
    move.end_ns = move.start_ns + duration;
    moves->push_back(move);
  };
  if (!last && pass.transfer_ns > 0) {
    const bool made = state.phase[i] >= kForwardDone;
    if (made && state.activation_ns[i] < 0) {
      add(Kind::kActivation, 0, state.forward_end[i], pass.transfer_ns);
    }
    if (state.phase[i + 1] >= kInputDone && state.gradient_ns[i] < 0) {
      add(Kind::kGradient, 0, state.input_end[i + 1], pass.transfer_ns);
    }
  }
  if (state.put_off[i]) return;
  const int64_t free_bytes = pipeline_.available_bytes[rank] - state.held_bytes[rank];
  if (state.phase[i] == kWaiting) {
    if (s > 0 && state.activation_ns[i - 1] < 0) return;
    const int64_t ready = s == 0 ? 0 : state.activation_ns[i - 1];
    for (uint8_t choice = 0; choice < pass.choices.size(); ++choice) {
      if (pass.choices[choice].kept_bytes + pass.forward_bytes > free_bytes) continue;
      add(Kind::kForward, choice, ready, pass.forward_ns);
      if (!memory_binds_[rank]) break;
    }
  } else if (state.phase[i] == kForwardDone) {
    if (!last && state.gradient_ns[i] < 0) return;
    if (pass.backward_bytes > free_bytes) return;
    const int64_t ready = last ? state.forward_end[i] : state.gradient_ns[i];
    const PassChoice& choice = pass.choices[state.choice[i]];
    const bool splits = pipeline_.split && pass.weight_ns > 0;
    // What is put aside beyond what was kept grows while the pass runs.
    const int64_t grows =
        std::max<int64_t>(0, pass.put_aside_bytes + pass.received_bytes - choice.kept_bytes);
    const bool fits_split = pass.backward_bytes + grows <= free_bytes;
    if (splits && fits_split) add(Kind::kInput, state.choice[i], ready, choice.backward_ns - pass.weight_ns);
    // Both parts at once differ from one after the other by their memory alone.
    if (!splits || memory_binds_[rank]) add(Kind::kWhole, state.choice[i], ready, choice.backward_ns);
  } else if (state.phase[i] == kInputDone) {
    add(Kind::kWeight, state.choice[i], state.input_end[i], pass.weight_ns);
  }
}

ScheduleState Search::Apply(const ScheduleState& before, const Move& move) const {
  ScheduleState state = before;
  const int i = Index(move.micro_batch, move.stage);
  const int rank = RankOf(move.stage);
  const SmallPass& pass = pipeline_.passes[i];
  const int64_t kept = pass.choices[move.choice].kept_bytes;
  const bool transfers = move.kind == Kind::kActivation || move.kind == Kind::kGradient;
  state.free_ns[MachineOf(move)] = transfers ? move.start_ns + pass.link_ns : move.end_ns;
  // What takes no transfer is there at once.
  const auto input_done = [&] {
    state.input_end[i] = move.end_ns;
    if (move.stage > 0 && pipeline_.passes[i - 1].transfer_ns == 0) state.gradient_ns[i - 1] = move.end_ns;
  };
  switch (move.kind) {
    case Kind::kActivation:
      state.activation_ns[i] = move.end_ns;
      return state;
    case Kind::kGradient:
      state.gradient_ns[i] = move.end_ns;
      return state;
    case Kind::kForward:
      state.phase[i] = kForwardDone;
      state.choice[i] = move.choice;
      state.forward_end[i] = move.end_ns;
      if (pass.transfer_ns == 0) state.activation_ns[i] = move.end_ns;
      state.held_bytes[rank] += kept;
      break;
    case Kind::kInput:
      state.phase[i] = kInputDone;
      input_done();
      state.held_bytes[rank] += pass.put_aside_bytes - kept;
      break;
    case Kind::kWhole:
      state.phase[i] = kDone;
      input_done();
      state.held_bytes[rank] -= kept;
      break;
    case Kind::kWeight:
      state.phase[i] = kDone;
      state.held_bytes[rank] -= pass.put_aside_bytes;
      break;
  }
  if (state.phase[i] == kDone) {
    state.end_ns = std::max(state.end_ns, move.end_ns + pipeline_.reduce_ns[move.stage]);
  }
  for (int m = 0; m < pipeline_.micro_batches; ++m) {
    for (int s = 0; s < pipeline_.stages; ++s) {
      if (RankOf(s) == rank) state.put_off[Index(m, s)] = false;
    }
  }
  return state;
}

void Search::Report(const ScheduleState& state) {
  // Nothing ends before 0.
  limit_ns_ = any_ ? 0 : state.end_ns;
  best_.found = true;
  best_.end_ns = state.end_ns;
  best_.text.clear();
  best_.order.clear();
  best_.choices.assign(state.choice.begin(), state.choice.begin() + pipeline_.passes.size());
  static constexpr PassKind kKinds[] = {PassKind::kForward, PassKind::kBackward, PassKind::kBackwardInput,
                                        PassKind::kBackwardWeight};
  static constexpr const char* kNames[] = {"F", "B", "dX", "dW"};
  for (const Move& move : path_) {
    if (move.kind >= Kind::kActivation) continue;
    best_.order.push_back({kKinds[static_cast<int>(move.kind)], move.stage, move.micro_batch});
    absl::StrAppend(&best_.text, "rank ", RankOf(move.stage), " ", kNames[static_cast<int>(move.kind)], " m",
                    move.micro_batch, " s", move.stage, " choice ", static_cast<int>(move.choice), " ",
                    move.start_ns, "..", move.end_ns, "\n");
  }
}

void Search::Descend(const ScheduleState& state, const Move& move) {
  const ScheduleState next = Apply(state, move);
  path_.push_back(move);
  if (bound_.From(next, limit_ns_) < limit_ns_) Visit(next);
  path_.pop_back();
}

void Search::Visit(const ScheduleState& state) {
  if (--nodes_ < 0) {
    best_.complete = false;
    return;
  }
  std::vector<Move> moves;
  bool done = true;
  for (int m = 0; m < pipeline_.micro_batches; ++m) {
    for (int s = 0; s < pipeline_.stages; ++s) {
      if (state.phase[Index(m, s)] != kDone) done = false;
      AddMoves(state, m, s, &moves);
    }
  }
  if (done) return Report(state);
  if (moves.empty()) return;
  const Move first = *std::min_element(moves.begin(), moves.end(),
                                       [](const Move& a, const Move& b) { return a.end_ns < b.end_ns; });
  const int machine = MachineOf(first);
  const auto competes = [&](const Move& move) {
    return MachineOf(move) == machine && (move.start_ns < first.end_ns || move.end_ns == first.end_ns);
  };
  moves.erase(std::remove_if(moves.begin(), moves.end(), [&](const Move& move) { return !competes(move); }),
              moves.end());
  // Backward passes, then forward passes, then weight gradients: usually the best first.
  static constexpr int kOrder[] = {2, 1, 0, 3, 0, 1};
  std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
    if (a.start_ns != b.start_ns) return a.start_ns < b.start_ns;
    return kOrder[static_cast<int>(a.kind)] < kOrder[static_cast<int>(b.kind)];
  });
  for (const Move& move : moves) {
    Descend(state, move);
    if (!best_.complete) return;
  }
  // Where memory binds, running a forward pass early is not for nothing: the rank may wait instead.
  if (first.kind != Kind::kForward || !memory_binds_[machine]) return;
  ScheduleState waiting = state;
  for (const Move& move : moves) waiting.put_off[Index(move.micro_batch, move.stage)] = true;
  Visit(waiting);
}

}  // namespace

SmallSchedule BestSchedule(const SmallPipeline& pipeline, int64_t limit_ns, bool any, int64_t* nodes) {
  return Search(pipeline, limit_ns, any, nodes).Run();
}

int64_t LeastEnd(const SmallPipeline& pipeline) {
  int64_t nodes = 0;
  return Search(pipeline, kNever, /*any=*/false, &nodes).RootBound();
}

int64_t OneForwardOneBackwardEnd(const SmallPipeline& pipeline, const std::vector<int>& order) {
  const int stages = pipeline.stages;
  const int count = pipeline.micro_batches;
  std::vector<int64_t> free(stages, 0);
  std::vector<int> forwards(stages, 0);
  std::vector<int> backwards(stages, 0);
  std::vector<int64_t> forward_end(count * stages, 0);
  std::vector<int64_t> backward_end(count * stages, 0);
  int64_t end = 0;
  for (int left = 2 * count * stages; left > 0;) {
    for (int s = 0; s < stages; ++s) {
      const bool forward = forwards[s] < std::min(count, backwards[s] + stages - s);
      const int place = forward ? forwards[s] : backwards[s];
      if (place == count) continue;
      const int m = order[place];
      const SmallPass& pass = pipeline.at(m, s);
      if (forward) {
        if (s > 0 && forwards[s - 1] <= place) continue;
        const int64_t ready =
            s == 0 ? 0 : forward_end[m * stages + s - 1] + pipeline.at(m, s - 1).transfer_ns;
        free[s] = std::max(free[s], ready) + pass.forward_ns;
        forward_end[m * stages + s] = free[s];
        ++forwards[s];
      } else {
        if (s + 1 < stages && backwards[s + 1] <= place) continue;
        const int64_t ready = s + 1 == stages ? 0 : backward_end[m * stages + s + 1] + pass.transfer_ns;
        free[s] = std::max(free[s], ready) + pass.choices.front().backward_ns;
        backward_end[m * stages + s] = free[s];
        end = std::max(end, free[s] + pipeline.reduce_ns[s]);
        ++backwards[s];
      }
      --left;
    }
  }
  return end;
}

}  // namespace penstock::core
