#include "tests/unit/core/brute_force_bound.h"

#include <algorithm>

namespace penstock::core {

void ScheduleBound::PrepareTails() {
  const ScheduleState start;
  for (int m = 0; m < pipeline_.micro_batches; ++m) {
    for (int s = 0; s < pipeline_.stages; ++s) {
      const int64_t own = WeightNs(m, s) + pipeline_.reduce_ns[s];
      int64_t below = 0;
      if (s > 0) {
        const int64_t input = BackwardNs(start, m, s - 1) - WeightNs(m, s - 1);
        below = pipeline_.at(m, s - 1).transfer_ns + input + input_tail_[Index(m, s - 1)];
      }
      input_tail_[Index(m, s)] = std::max(own, below);
    }
    for (int s = pipeline_.stages - 1; s >= 0; --s) {
      int64_t above = 0;
      if (s + 1 < pipeline_.stages) {
        const SmallPass& next = pipeline_.at(m, s + 1);
        const int64_t transfer = pipeline_.at(m, s).transfer_ns;
        // Up, and the gradient's way back is at least the way from there.
        above = transfer + next.forward_ns + forward_tail_[Index(m, s + 1)];
      } else {
        above = BackwardNs(start, m, s) - WeightNs(m, s) + input_tail_[Index(m, s)];
      }
      forward_tail_[Index(m, s)] = above;
    }
  }
}

int64_t ScheduleBound::Remaining(const ScheduleState& state, int m) {
  // Along the way of the micro-batch: when the next pass can start.
  int64_t ready = 0;
  const auto cross = [&](int s, int64_t there, int64_t tail) {
    const int64_t transfer = pipeline_.at(m, s).transfer_ns;
    const int64_t link = pipeline_.at(m, s).link_ns;
    if (there >= 0) {
      ready = there;
    } else if (transfer > 0) {
      const int64_t start = std::max(ready, state.free_ns[LinkOf(s)]);
      left_[LinkOf(s)].push_back({start, link, transfer - link + tail});
      ready = start + transfer;
    }
  };
  for (int s = 0; s < pipeline_.stages; ++s) {
    const int i = Index(m, s);
    const SmallPass& pass = pipeline_.at(m, s);
    if (state.phase[i] == kWaiting) {
      const int64_t start = std::max(ready, state.free_ns[RankOf(s)]);
      left_[RankOf(s)].push_back({start, pass.forward_ns, forward_tail_[i]});
      ready = start + pass.forward_ns;
    } else {
      ready = state.forward_end[i];
    }
    if (s + 1 < pipeline_.stages) {
      cross(s, state.activation_ns[i], pipeline_.at(m, s + 1).forward_ns + forward_tail_[i + 1]);
    }
  }
  int64_t end = 0;
  for (int s = pipeline_.stages - 1; s >= 0; --s) {
    const int i = Index(m, s);
    const int rank = RankOf(s);
    const int64_t input = BackwardNs(state, m, s) - WeightNs(m, s);
    if (s + 1 < pipeline_.stages) cross(s, state.gradient_ns[i], input + input_tail_[i]);
    if (state.phase[i] <= kForwardDone) {
      const int64_t start = std::max(ready, state.free_ns[rank]);
      left_[rank].push_back({start, input, input_tail_[i]});
      ready = start + input;
      end = std::max(end, ready + input_tail_[i]);
    } else {
      ready = state.input_end[i];
    }
    if (WeightNs(m, s) > 0 && state.phase[i] != kDone) {
      left_[rank].push_back({std::max(ready, state.free_ns[rank]), WeightNs(m, s), pipeline_.reduce_ns[s]});
    }
  }
  return end;
}

// Jackson's preemptive schedule: at every moment the job that is there with the longest tail.
int64_t ScheduleBound::MachineBound(std::vector<Work>* jobs) const {
  std::sort(jobs->begin(), jobs->end(), [](const Work& a, const Work& b) { return a.head < b.head; });
  std::array<Work, 3 * kMaxPasses> present;
  int count = 0;
  size_t next = 0;
  int64_t now = 0;
  int64_t bound = 0;
  while (count > 0 || next < jobs->size()) {
    if (count == 0) now = std::max(now, (*jobs)[next].head);
    while (next < jobs->size() && (*jobs)[next].head <= now) {
      int place = count++;
      for (; place > 0 && present[place - 1].tail > (*jobs)[next].tail; --place) {
        present[place] = present[place - 1];
      }
      present[place] = (*jobs)[next++];
    }
    Work& longest = present[count - 1];
    const int64_t until = next < jobs->size() ? (*jobs)[next].head : kNever;
    const int64_t run = std::min(longest.duration, until - now);
    now += run;
    longest.duration -= run;
    if (longest.duration == 0) {
      bound = std::max(bound, now + longest.tail);
      --count;
    }
  }
  return bound;
}

int64_t ScheduleBound::From(const ScheduleState& state, int64_t limit_ns) {
  for (auto& jobs : left_) jobs.clear();
  int64_t bound = state.end_ns;
  for (int m = 0; m < pipeline_.micro_batches; ++m) bound = std::max(bound, Remaining(state, m));
  for (int machine = 0; machine < 2 * pipeline_.positions && bound < limit_ns; ++machine) {
    bound = std::max(bound, MachineBound(&left_[machine]));
  }
  return bound;
}

}  // namespace penstock::core
