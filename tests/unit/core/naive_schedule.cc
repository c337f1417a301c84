#include "tests/unit/core/naive_schedule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "tests/unit/core/brute_force.h"

namespace penstock::core {
namespace {

class NaiveSearch {
 public:
  explicit NaiveSearch(const SmallPipeline& pipeline)
      : pipeline_(pipeline),
        free_(pipeline.positions, 0),
        held_(pipeline.positions, 0),
        phase_(pipeline.passes.size(), 0),
        choice_(pipeline.passes.size(), 0),
        forward_(pipeline.passes.size(), 0),
        input_(pipeline.passes.size(), 0),
        link_(pipeline.positions, 0),
        activation_(pipeline.passes.size(), -1),
        gradient_(pipeline.passes.size(), -1) {}

  // kForever when nothing fits.
  int64_t Best() {
    Visit(0);
    return best_;
  }

 private:
  // Runs a pass, goes on, and takes it back.
  void Run(int i, int phase, int choice, int64_t ready, int64_t duration, int64_t kept, int64_t* end_of,
           int64_t end) {
    const int stage = i % pipeline_.stages;
    const int rank = pipeline_.position_of_stage[stage];
    const auto before = std::tuple(free_[rank], held_[rank], phase_[i], choice_[i]);
    free_[rank] = std::max(free_[rank], ready) + duration;
    held_[rank] += kept;
    phase_[i] = phase;
    choice_[i] = choice;
    if (end_of != nullptr) *end_of = free_[rank];
    Visit(phase == 3 ? std::max(end, free_[rank] + pipeline_.reduce_ns[stage]) : end);
    std::tie(free_[rank], held_[rank], phase_[i], choice_[i]) = before;
  }

  // A transfer over the boundary above pass i.
  void Send(int i, int64_t ready, int64_t* arrival, int64_t end) {
    int64_t& link = link_[pipeline_.position_of_stage[i % pipeline_.stages]];
    const int64_t before = link;
    const int64_t transfer = pipeline_.passes[i].transfer_ns;
    *arrival = transfer == 0 ? ready : std::max(link, ready) + transfer;
    if (transfer > 0) link = *arrival;
    Visit(end);
    link = before;
    *arrival = -1;
  }

  void Visit(int64_t end) {
    bool done = true;
    for (size_t i = 0; i < phase_.size(); ++i) {
      if (phase_[i] != 3) done = false;
      Extend(static_cast<int>(i), end);
    }
    if (done) best_ = std::min(best_, end);
  }

  void Extend(int i, int64_t end) {
    const int stage = i % pipeline_.stages;
    const SmallPass& pass = pipeline_.passes[i];
    const int rank = pipeline_.position_of_stage[stage];
    const int64_t room = pipeline_.available_bytes[rank] - held_[rank];
    const bool last = stage + 1 == pipeline_.stages;
    if (!last && phase_[i] > 0 && activation_[i] < 0) {
      Send(i, forward_[i], &activation_[i], end);
      if (pass.transfer_ns == 0) return;
    }
    if (!last && phase_[i + 1] > 1 && gradient_[i] < 0) {
      Send(i, input_[i + 1], &gradient_[i], end);
      if (pass.transfer_ns == 0) return;
    }
    if (phase_[i] == 0 && (stage == 0 || activation_[i - 1] >= 0)) {
      const int64_t ready = stage == 0 ? 0 : activation_[i - 1];
      for (size_t c = 0; c < pass.choices.size(); ++c) {
        const int64_t kept = pass.choices[c].kept_bytes;
        if (kept + pass.forward_bytes > room) continue;
        Run(i, 1, static_cast<int>(c), ready, pass.forward_ns, kept, &forward_[i], end);
      }
    } else if (phase_[i] == 1 && (last || gradient_[i] >= 0)) {
      if (pass.backward_bytes > room) return;
      const int64_t ready = last ? forward_[i] : gradient_[i];
      const PassChoice& choice = pass.choices[choice_[i]];
      Run(i, 3, choice_[i], ready, choice.backward_ns, -choice.kept_bytes, &input_[i], end);
      const int64_t more = pass.put_aside_bytes - choice.kept_bytes;
      const int64_t grows = std::max<int64_t>(0, more + pass.received_bytes);
      if (!pipeline_.split || pass.backward_bytes + grows > room) return;
      Run(i, 2, choice_[i], ready, choice.backward_ns - pass.weight_ns, more, &input_[i], end);
    } else if (phase_[i] == 2) {
      Run(i, 3, choice_[i], input_[i], pass.weight_ns, -pass.put_aside_bytes, nullptr, end);
    }
  }

  const SmallPipeline& pipeline_;
  std::vector<int64_t> free_;
  std::vector<int64_t> held_;
  std::vector<int> phase_;
  std::vector<int> choice_;
  std::vector<int64_t> forward_;
  std::vector<int64_t> input_;
  std::vector<int64_t> link_;
  // -1 before it is sent.
  std::vector<int64_t> activation_;
  std::vector<int64_t> gradient_;
  int64_t best_ = kForever;
};

}  // namespace

int64_t NaiveBestEnd(const SmallPipeline& pipeline) { return NaiveSearch(pipeline).Best(); }

}  // namespace penstock::core
