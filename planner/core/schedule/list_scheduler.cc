#include "planner/core/schedule/list_scheduler.h"

#include <algorithm>

namespace penstock::core {

ListScheduler::ListScheduler(absl::Span<const int32_t> position_of_stage, int ranks, StopToken stop)
    : position_of_stage_(position_of_stage.begin(), position_of_stage.end()),
      stages_(position_of_stage.size()),
      ranks_(ranks),
      wake_ns_(ranks, 0),
      clock_(position_of_stage, ranks),
      stop_(stop) {
  for (int rank = 0; rank < ranks; ++rank) {
    rank_begin_.push_back(static_cast<int32_t>(stages_of_rank_.size()));
    for (int stage = static_cast<int>(position_of_stage.size()) - 1; stage >= 0; --stage) {
      if (position_of_stage[stage] == rank) stages_of_rank_.push_back(stage);
    }
  }
  rank_begin_.push_back(static_cast<int32_t>(stages_of_rank_.size()));
}

void ListScheduler::Reset(const PassTable& table) {
  const size_t size = table.rows.size() * table.stages;
  clock_.Reset(table);
  std::fill(stages_.begin(), stages_.end(), StageState());
  std::fill(ranks_.begin(), ranks_.end(), RankState());
  std::fill(wake_ns_.begin(), wake_ns_.end(), 0);
  for (int stage = 0; stage < table.stages; ++stage) {
    RankState& rank = ranks_[position_of_stage_[stage]];
    for (const int32_t row : table.rows) {
      rank.passing_bytes = std::max(rank.passing_bytes, table.passing_bytes[row + stage]);
      stages_[stage].most_held_bytes =
          std::max(stages_[stage].most_held_bytes, table.held_bytes[row + stage]);
      rank.left_ns += table.forward_ns[row + stage] + table.backward_ns[row + stage];
    }
  }
  // A rank puts aside what its own stages have.
  size_t most_stages = 0;
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    most_stages = std::max(most_stages, static_cast<size_t>(rank_begin_[rank + 1] - rank_begin_[rank]));
  weight_capacity_ = most_stages * table.rows.size();
  if (weights_.size() < ranks_.size() * weight_capacity_) weights_.resize(ranks_.size() * weight_capacity_);
  left_ = 2 * static_cast<int64_t>(size);
  passes_run_ = 0;
  if (order_ != nullptr) order_->clear();
}

int64_t ListScheduler::Run(const PassTable& table, const ScheduleRules& rules, int64_t give_up_ns,
                           std::vector<Pass>* order) {
  order_ = order;
  Reset(table);
  while (left_ > 0) {
    int next = 0;
    for (int rank = 1; rank < table.positions; ++rank) {
      if (wake_ns_[rank] < wake_ns_[next]) next = rank;
    }
    if (wake_ns_[next] == kNever || wake_ns_[next] + ranks_[next].left_ns > give_up_ns || stop_.stopped()) {
      if (order_ != nullptr) order_->clear();
      return kInfeasibleNs;
    }
    Step(table, rules, next);
  }
  return clock_.EndOfIteration(table);
}

bool ListScheduler::ReceiverHasRoom(const PassTable& table, int stage) const {
  const int receiver = position_of_stage_[stage + 1];
  const int64_t bytes = table.input_bytes[table.rows[stages_[stage].forwards] + stage + 1];
  const StageState& next = stages_[stage + 1];
  const RankState& rank = ranks_[receiver];
  const int64_t room = table.available_bytes[receiver] - rank.passing_bytes - bytes;
  return rank.used_bytes <= room &&
         (next.queued_bytes == 0 || next.queued_bytes + next.most_held_bytes <= room);
}

bool ListScheduler::BackwardsFit(const PassTable& table, const ScheduleRules& rules, int rank, int64_t bytes,
                                 int changed_stage, InFlight changed) const {
  int64_t room = table.available_bytes[rank] - bytes;
  if (ranks_[rank].passing_bytes <= room) return true;
  const auto in_flight = [&](int stage) {
    return stage == changed_stage ? changed : InFlight{stages_[stage].backwards, stages_[stage].forwards};
  };
  int32_t backward = std::numeric_limits<int32_t>::max();
  int32_t left = 0;
  for (int32_t i = rank_begin_[rank]; i < rank_begin_[rank + 1]; ++i) {
    const InFlight of_stage = in_flight(stages_of_rank_[i]);
    if (of_stage.entered == of_stage.begin) continue;
    backward = std::min(backward, of_stage.begin);
    left += of_stage.entered - of_stage.begin;
  }
  for (; left > 0; ++backward) {
    const int32_t micro_batch = NextBackward(rules, backward);
    for (int32_t i = rank_begin_[rank]; i < rank_begin_[rank + 1]; ++i) {
      const int stage = stages_of_rank_[i];
      const InFlight of_stage = in_flight(stage);
      if (backward < of_stage.begin || micro_batch >= of_stage.entered) continue;
      const int32_t at = table.rows[micro_batch] + stage;
      if (table.passing_bytes[at] > room) return false;
      room += table.held_bytes[at];
      --left;
    }
    if (ranks_[rank].passing_bytes <= room) return true;
  }
  return true;
}

bool ListScheduler::FitsForward(const PassTable& table, const ScheduleRules& rules, int stage) const {
  const StageState& state = stages_[stage];
  const int rank = position_of_stage_[stage];
  const int32_t at = table.rows[state.forwards] + stage;
  int64_t bytes = ranks_[rank].used_bytes + table.held_bytes[at] - table.input_bytes[at];
  if (bytes + table.forward_passing_bytes[at] > table.available_bytes[rank]) return false;
  // The next stage's input stays here.
  if (stage + 1 < table.stages && position_of_stage_[stage + 1] == rank) bytes += table.input_bytes[at + 1];
  return BackwardsFit(table, rules, rank, bytes, stage, {state.backwards, state.forwards + 1});
}

bool ListScheduler::FitsBackward(const PassTable& table, int stage, int32_t micro_batch) const {
  const int rank = position_of_stage_[stage];
  return ranks_[rank].used_bytes + table.passing_bytes[table.rows[micro_batch] + stage] <=
         table.available_bytes[rank];
}

bool ListScheduler::FitsSplit(const PassTable& table, const ScheduleRules& rules, int stage) const {
  const StageState& state = stages_[stage];
  const int rank = position_of_stage_[stage];
  const int32_t at = table.rows[NextBackward(rules, state.backwards)] + stage;
  // The received activation is given back with the pass.
  const int64_t bytes =
      ranks_[rank].used_bytes - table.held_bytes[at] + table.put_aside_bytes[at] + table.input_bytes[at];
  return table.passing_bytes[at] <= table.available_bytes[rank] - bytes &&
         BackwardsFit(table, rules, rank, bytes, stage, {state.backwards + 1, state.forwards});
}

void ListScheduler::LookAtStage(const PassTable& table, const ScheduleRules& rules, int stage, int64_t now,
                                Choice* choice) const {
  const StageState& state = stages_[stage];
  const int last = table.stages - 1;
  const auto micro_batches = static_cast<int32_t>(table.rows.size());
  const int32_t in_flight = state.forwards - state.backwards;
  const bool wants_forward = state.forwards < micro_batches && in_flight < rules.ahead[stage];
  const bool has_input = stage == 0 || stages_[stage - 1].forwards > state.forwards;
  // Takes longer than all else here, so that it is asked only where the answer counts.
  const bool fits =
      wants_forward && (has_input || rules.one_forward_one_backward) && FitsForward(table, rules, stage);
  const int32_t backward = in_flight > 0 ? NextBackward(rules, state.backwards) : 0;
  const bool wants_backward =
      in_flight > 0 && backward < state.forwards && !(rules.one_forward_one_backward && fits);
  if (wants_backward && (stage == last || stages_[stage + 1].backwards > state.backwards)) {
    const int64_t arrival = clock_.GradientNs(table, backward, stage);
    if (arrival > now) {
      choice->next_arrival_ns = std::min(choice->next_arrival_ns, arrival);
    } else if (!FitsBackward(table, stage, backward)) {
      choice->short_of_memory = true;
    } else if (choice->backward < 0 || (stage > 0 && state.backwards < stages_[choice->backward].backwards)) {
      // The oldest; but the first stage's last, because nobody waits for it.
      choice->backward = stage;
    }
  }
  if (wants_forward && has_input) {
    const int64_t arrival = clock_.ActivationNs(table, state.forwards, stage);
    const bool sends = stage < last && position_of_stage_[stage + 1] != position_of_stage_[stage];
    if (!fits) {
      choice->short_of_memory = choice->short_of_memory || arrival <= now;
    } else if (sends && arrival <= now && !ReceiverHasRoom(table, stage)) {
      choice->receiver_is_full = true;
    } else if (arrival > now) {
      choice->next_arrival_ns = std::min(choice->next_arrival_ns, arrival);
    } else if (choice->forward < 0) {
      choice->forward = stage;
    }
  }
}

ListScheduler::Choice ListScheduler::Choose(const PassTable& table, const ScheduleRules& rules, int rank,
                                            int64_t now) const {
  Choice choice;
  for (int32_t i = rank_begin_[rank]; i < rank_begin_[rank + 1]; ++i) {
    LookAtStage(table, rules, stages_of_rank_[i], now, &choice);
  }
  return choice;
}

void ListScheduler::Step(const PassTable& table, const ScheduleRules& rules, int rank) {
  RankState& state = ranks_[rank];
  const int64_t now = wake_ns_[rank];
  const Choice choice = Choose(table, rules, rank, now);
  // Nobody waits for the gradients of the first stage's input: what feeds the others goes first.
  const bool forward_first = choice.forward >= 0 && (choice.backward == 0 || rules.forward_first[rank] != 0);
  if (choice.backward >= 0 && !forward_first) {
    RunBackward(table, rules, choice.backward, now);
  } else if (choice.forward >= 0) {
    RunForward(table, choice.forward, now);
  } else {
    const int weight =
        state.weights == 0
            ? -1
            : PickWeight(rank, choice.next_arrival_ns == kNever ? kNever : choice.next_arrival_ns - now,
                         choice.short_of_memory || rules.eager_weights[rank] != 0);
    if (weight < 0) {
      state.waits_for_receiver = choice.receiver_is_full;
      wake_ns_[rank] = choice.next_arrival_ns;
      return;
    }
    RunWeight(table, rank, weight, now);
  }
  state.waits_for_receiver = false;
  wake_ns_[rank] = state.left_ns == 0 ? kNever : state.free_ns;
  WakeSenders(rank, state.free_ns);
}

int ListScheduler::PickWeight(int rank, int64_t gap_ns, bool any) const {
  const Weight* weights = &weights_[rank * weight_capacity_];
  int best = -1;
  for (int i = 0; i < ranks_[rank].weights; ++i) {
    if (weights[i].time_ns <= gap_ns && (best < 0 || weights[i].time_ns > weights[best].time_ns)) best = i;
  }
  return best >= 0 || !any ? best : 0;
}

void ListScheduler::Wake(int rank, int64_t time_ns) {
  wake_ns_[rank] = std::min(wake_ns_[rank], std::max(time_ns, ranks_[rank].free_ns));
}

void ListScheduler::WakeSenders(int rank, int64_t time_ns) {
  for (int32_t i = rank_begin_[rank]; i < rank_begin_[rank + 1]; ++i) {
    const int stage = stages_of_rank_[i];
    if (stage == 0) continue;
    RankState& sender = ranks_[position_of_stage_[stage - 1]];
    if (!sender.waits_for_receiver) continue;
    sender.waits_for_receiver = false;
    Wake(position_of_stage_[stage - 1], time_ns);
  }
}

void ListScheduler::RunForward(const PassTable& table, int stage, int64_t now) {
  StageState& state = stages_[stage];
  RankState& rank = ranks_[position_of_stage_[stage]];
  const int32_t row = table.rows[state.forwards];
  rank.free_ns = now + table.forward_ns[row + stage];
  rank.left_ns -= table.forward_ns[row + stage];
  rank.used_bytes += table.held_bytes[row + stage] - table.input_bytes[row + stage];
  state.queued_bytes -= table.input_bytes[row + stage];
  if (stage + 1 < table.stages) {
    stages_[stage + 1].queued_bytes += table.input_bytes[row + stage + 1];
    ranks_[position_of_stage_[stage + 1]].used_bytes += table.input_bytes[row + stage + 1];
    const int64_t arrival = clock_.SendActivation(table, state.forwards, stage, rank.free_ns);
    Wake(position_of_stage_[stage + 1], arrival);
  }
  Record(PassKind::kForward, stage, state.forwards);
  ++state.forwards;
  --left_;
}

void ListScheduler::RunBackward(const PassTable& table, const ScheduleRules& rules, int stage, int64_t now) {
  StageState& state = stages_[stage];
  const int rank_index = position_of_stage_[stage];
  RankState& rank = ranks_[rank_index];
  const int32_t micro_batch = NextBackward(rules, state.backwards);
  const int32_t row = table.rows[micro_batch];
  const int64_t held = table.held_bytes[row + stage];
  const int64_t put_aside = table.put_aside_bytes[row + stage];
  const int64_t weight = table.weight_ns[row + stage];
  const bool split = weight > 0 && rules.split[stage] != 0 && FitsSplit(table, rules, stage);
  const int64_t duration = table.backward_ns[row + stage] - (split ? weight : 0);
  rank.free_ns = now + duration;
  rank.left_ns -= duration;
  rank.used_bytes -= held;
  if (split) {
    rank.used_bytes += put_aside;
    weights_[rank_index * weight_capacity_ + rank.weights++] = {stage, micro_batch, weight};
    ++left_;
  }
  if (stage > 0) {
    const int64_t arrival = clock_.SendGradient(table, micro_batch, stage, rank.free_ns);
    Wake(position_of_stage_[stage - 1], arrival);
  }
  clock_.EndBackward(stage, rank.free_ns);
  Record(split ? PassKind::kBackwardInput : PassKind::kBackward, stage, micro_batch);
  ++state.backwards;
  --left_;
}

void ListScheduler::RunWeight(const PassTable& table, int rank, int index, int64_t now) {
  RankState& state = ranks_[rank];
  Weight* weights = &weights_[rank * weight_capacity_];
  const Weight weight = weights[index];
  std::copy(weights + index + 1, weights + state.weights, weights + index);
  --state.weights;
  state.free_ns = now + weight.time_ns;
  state.left_ns -= weight.time_ns;
  state.used_bytes -= table.put_aside_bytes[table.rows[weight.micro_batch] + weight.stage];
  clock_.EndBackward(weight.stage, state.free_ns);
  Record(PassKind::kBackwardWeight, weight.stage, weight.micro_batch);
  --left_;
}

void ListScheduler::Record(PassKind kind, int stage, int micro_batch) {
  ++passes_run_;
  if (order_ != nullptr) order_->push_back({kind, stage, micro_batch});
}

RankPasses ByRank(absl::Span<const Pass> order, absl::Span<const int32_t> position_of_stage, int ranks) {
  RankPasses passes;
  passes.rank_begin.assign(ranks + 1, 0);
  for (const Pass& pass : order) ++passes.rank_begin[position_of_stage[pass.stage] + 1];
  for (int rank = 0; rank < ranks; ++rank) passes.rank_begin[rank + 1] += passes.rank_begin[rank];
  passes.passes.resize(order.size());
  std::vector<int32_t> next(passes.rank_begin.begin(), passes.rank_begin.end() - 1);
  for (const Pass& pass : order) passes.passes[next[position_of_stage[pass.stage]]++] = pass;
  return passes;
}

}  // namespace penstock::core
