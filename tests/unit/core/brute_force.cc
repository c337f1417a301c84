#include "tests/unit/core/brute_force.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/search/memory_room.h"
#include "tests/unit/core/brute_force_exact.h"
#include "tests/unit/core/brute_force_micro_batch.h"

namespace penstock::core {
namespace {

using Groups = std::vector<SampleMask>;

int64_t OptimizerNs(const CostModel& costs) {
  int64_t longest = 0;
  for (int rank = 0; rank < costs.positions(); ++rank)
    longest = std::max(longest, costs.WholeIterationNs(rank));
  return longest;
}

// Leaves out what does not fit even if the micro-batch is alone on the rank. Keeps one, for those that have
// none.
void DropWhatNeverFits(int64_t available_bytes, SmallPass* pass) {
  std::vector<PassChoice>& choices = pass->choices;
  while (choices.size() > 1 && choices.front().kept_bytes + pass->backward_bytes > available_bytes) {
    choices.erase(choices.begin());
  }
}

SmallPipeline MakePipeline(const CostModel& costs, const Job& job, int replica,
                           const std::vector<const SmallMicroBatch*>& micro_batches) {
  SmallPipeline pipeline;
  pipeline.stages = costs.stages();
  pipeline.positions = costs.positions();
  pipeline.position_of_stage = costs.position_of_stage();
  pipeline.micro_batches = static_cast<int>(micro_batches.size());
  pipeline.split = job.schedule == ScheduleFamily::kAuto || job.schedule == ScheduleFamily::kSplitBackward;
  for (const SmallMicroBatch* micro_batch : micro_batches) {
    pipeline.passes.insert(pipeline.passes.end(), micro_batch->passes.begin(), micro_batch->passes.end());
  }
  const MemoryRoom all_room = AvailableBytes(job, costs);
  const absl::Span<const int64_t> room = all_room.Of(replica);
  pipeline.available_bytes.assign(room.begin(), room.end());
  for (size_t i = 0; i < pipeline.passes.size(); ++i) {
    const int rank = costs.position_of(static_cast<int>(i) % pipeline.stages);
    DropWhatNeverFits(pipeline.available_bytes[rank], &pipeline.passes[i]);
  }
  // The stages of a rank reduce one after another, the last one first.
  std::vector<int64_t> rank_reduce(costs.positions(), 0);
  for (int s = 0; s < costs.stages(); ++s) {
    int64_t& reduce = rank_reduce[costs.position_of(s)];
    reduce += costs.LeastReduceNs(s);
    pipeline.reduce_ns.push_back(reduce);
  }
  return pipeline;
}

class Enumeration {
 public:
  Enumeration(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> samples,
              const BruteForceOptions& options, bool fixed_schedule)
      : costs_(costs),
        job_(job),
        samples_(samples),
        nodes_(options.nodes),
        any_(options.any),
        exact_(options.exact),
        fixed_schedule_(fixed_schedule),
        limit_ns_(options.at_most_ns + 1 - OptimizerNs(costs)) {}

  BruteForceAnswer Run();

 private:
  // The best of a replica for some samples: exact where it ends before `limit_ns`, else there is none before.
  struct ReplicaAnswer {
    int64_t limit_ns = 0;
    std::optional<int64_t> end_ns;
    std::string text;
  };

  // Replicas whose links are equally fast share answers, unless some of their ranks are slow or ranks have
  // different memory.
  int64_t ClassOf(int replica) const;
  // All layouts and placements that may be of use.
  std::vector<SmallMicroBatch> Layouts(SampleMask samples, int replica) const;
  void Keep(SmallMicroBatch micro_batch, std::vector<SmallMicroBatch>* kept) const;
  const ReplicaAnswer& BestReplica(SampleMask samples, int replica);
  void TryGroups(const Groups& groups, int replica, int64_t limit, ReplicaAnswer* answer);
  void TryPipeline(const std::vector<const SmallMicroBatch*>& micro_batches, int replica, int64_t limit,
                   ReplicaAnswer* answer);
  void Assign(int replica, SampleMask left, int64_t end, bool any_empty, const std::string& text);

  const CostModel& costs_;
  const Job& job_;
  absl::Span<const SampleTokens> samples_;
  int64_t nodes_;
  bool any_;
  bool exact_;
  bool fixed_schedule_;
  // Ends before it are looked for; of the last reduction of gradients.
  int64_t limit_ns_;
  std::map<std::pair<SampleMask, int64_t>, ReplicaAnswer> replicas_;
  BruteForceAnswer best_;
};

int64_t Enumeration::ClassOf(int replica) const {
  if (costs_.slow_groups().AnyOf(replica) || costs_.slow_links().any() || !job_.memory_limits.alike())
    return -1 - replica;
  const Topology& topology = costs_.topology();
  int64_t bits = 0;
  for (int stage = 0; stage + 1 < costs_.stages(); ++stage) {
    for (int place = 0; place < costs_.group().ranks(); ++place) {
      const Link link = costs_.LinkBetween(topology.RankOf(replica, stage, place),
                                           topology.RankOf(replica, stage + 1, place));
      bits = 2 * bits + (link == Link::kInsideNode ? 0 : 1);
    }
  }
  return bits;
}

std::vector<SmallMicroBatch> Enumeration::Layouts(SampleMask samples, int replica) const {
  std::vector<uint32_t> list;
  for (uint32_t sample = 0; sample < samples_.size(); ++sample) {
    if ((samples >> sample & 1) != 0) list.push_back(sample);
  }
  std::vector<SmallMicroBatch> result;
  for (const Layout layout : {Layout::kPacked, Layout::kPadded}) {
    if (job_.layout == LayoutChoice::kPacked && layout != Layout::kPacked) continue;
    if (job_.layout == LayoutChoice::kPadded && layout != Layout::kPadded) continue;
    std::vector<Span> spans;
    const std::vector<Row> rows = RowsOf(list, samples_, layout, {});
    ForEachPlacement(costs_.group().context, rows, &spans, [&] {
      auto micro_batch = MakeMicroBatch(costs_, job_, samples_, list, layout, replica, spans);
      if (!micro_batch.has_value()) return;
      micro_batch->samples = samples;
      Keep(*std::move(micro_batch), &result);
    });
  }
  return result;
}

void Enumeration::Keep(SmallMicroBatch micro_batch, std::vector<SmallMicroBatch>* kept) const {
  if (costs_.group().context == 1) {
    if (kept->empty() || !NoWorse(kept->front(), micro_batch)) kept->push_back(std::move(micro_batch));
    return;
  }
  for (const SmallMicroBatch& other : *kept) {
    if (NoSlower(other, micro_batch)) return;
  }
  const auto slower = [&](const SmallMicroBatch& other) { return NoSlower(micro_batch, other); };
  kept->erase(std::remove_if(kept->begin(), kept->end(), slower), kept->end());
  kept->push_back(std::move(micro_batch));
}

std::string Describe(const std::vector<const SmallMicroBatch*>& micro_batches) {
  std::string text;
  for (size_t m = 0; m < micro_batches.size(); ++m) {
    absl::StrAppend(&text, "m", m, micro_batches[m]->layout == Layout::kPacked ? " packed" : " padded", ":");
    for (uint32_t sample = 0; sample < 32; ++sample) {
      if ((micro_batches[m]->samples >> sample & 1) != 0) absl::StrAppend(&text, " ", sample);
    }
    for (const Span& span : micro_batches[m]->spans)
      absl::StrAppend(&text, " @", span.first, "x", span.ranks);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// Whether everything could be on a rank at once.
bool MemoryIsPlenty(const SmallPipeline& pipeline) {
  for (int rank = 0; rank < pipeline.positions; ++rank) {
    int64_t bytes = 0;
    for (int m = 0; m < pipeline.micro_batches; ++m) {
      for (int s = 0; s < pipeline.stages; ++s) {
        const SmallPass& pass = pipeline.at(m, s);
        if (pipeline.position_of_stage[s] != rank) continue;
        // Twice the buffers: those of a neighbour may be there early or late.
        bytes += pass.choices.front().kept_bytes + 2 * (pass.forward_bytes + pass.backward_bytes);
      }
    }
    if (bytes > pipeline.available_bytes[rank]) return false;
  }
  return true;
}

void Enumeration::TryPipeline(const std::vector<const SmallMicroBatch*>& micro_batches, int replica,
                              int64_t limit, ReplicaAnswer* answer) {
  const SmallPipeline pipeline = MakePipeline(costs_, job_, replica, micro_batches);
  const int64_t before = answer->end_ns.value_or(limit);
  if (fixed_schedule_) {
    if (!MemoryIsPlenty(pipeline)) best_.complete = false;
    std::vector<int> order(micro_batches.size());
    std::iota(order.begin(), order.end(), 0);
    do {
      const int64_t least = answer->end_ns.value_or(limit);
      if (OneForwardOneBackwardEnd(pipeline, order) >= least) continue;
      const int64_t end = ExactOneForwardOneBackwardEnd(pipeline, order);
      if (end < least) {
        answer->end_ns = end;
        answer->text = Describe(micro_batches);
        for (const int m : order) absl::StrAppend(&answer->text, "then m", m, "\n");
      }
    } while (std::next_permutation(order.begin(), order.end()));
    return;
  }
  const SmallSchedule schedule = exact_ ? BestExactSchedule(costs_, pipeline, before, any_, &nodes_)
                                        : BestSchedule(pipeline, before, any_, &nodes_);
  if (!schedule.complete) best_.complete = false;
  if (!schedule.found) return;
  answer->end_ns = schedule.end_ns;
  answer->text = absl::StrCat(Describe(micro_batches), schedule.text);
}

void Enumeration::TryGroups(const Groups& groups, int replica, int64_t limit, ReplicaAnswer* answer) {
  std::vector<std::vector<SmallMicroBatch>> layouts;
  for (const SampleMask group : groups) layouts.push_back(Layouts(group, replica));
  std::vector<const SmallMicroBatch*> chosen;
  const std::function<void()> choose = [&] {
    if (chosen.size() == layouts.size()) return TryPipeline(chosen, replica, limit, answer);
    for (const SmallMicroBatch& micro_batch : layouts[chosen.size()]) {
      chosen.push_back(&micro_batch);
      choose();
      chosen.pop_back();
    }
  };
  choose();
}

// Calls `visit` for every division of the samples in `left` into groups.
void ForEachGrouping(SampleMask left, Groups* groups, const std::function<void()>& visit) {
  if (left == 0) return visit();
  const SampleMask first = left & (~left + 1);
  const SampleMask rest = left ^ first;
  // Every subset of the rest joins the first sample.
  for (SampleMask others = rest;; others = (others - 1) & rest) {
    groups->push_back(first | others);
    ForEachGrouping(rest ^ others, groups, visit);
    groups->pop_back();
    if (others == 0) break;
  }
}

const Enumeration::ReplicaAnswer& Enumeration::BestReplica(SampleMask samples, int replica) {
  ReplicaAnswer& answer = replicas_[{samples, ClassOf(replica)}];
  if (answer.end_ns.has_value() || answer.limit_ns >= limit_ns_) return answer;
  answer.limit_ns = limit_ns_;
  Groups groups;
  ForEachGrouping(samples, &groups, [&] {
    if (any_ && answer.end_ns.has_value()) return;
    if (best_.complete) TryGroups(groups, replica, limit_ns_, &answer);
  });
  return answer;
}

void Enumeration::Assign(int replica, SampleMask left, int64_t end, bool any_empty, const std::string& text) {
  if (!best_.complete || end >= limit_ns_ || (any_ && best_.found)) return;
  if (replica == job_.topology.replicas()) {
    if (left != 0) return;
    limit_ns_ = end;
    best_.found = true;
    best_.makespan_ns = end + OptimizerNs(costs_);
    best_.leaves_empty = any_empty;
    best_.text = text;
    return;
  }
  const bool too_few = static_cast<int>(samples_.size()) < job_.topology.replicas();
  const bool may_be_empty = too_few || !job_.memory_limits.alike();
  for (SampleMask own = left;; own = (own - 1) & left) {
    const bool last = replica + 1 == job_.topology.replicas();
    if ((own != 0 || may_be_empty) && (!last || own == left)) {
      // An empty replica only takes part in the reduction.
      ReplicaAnswer empty;
      empty.end_ns = 0;
      const ReplicaAnswer& answer = own == 0 ? empty : BestReplica(own, replica);
      if (answer.end_ns.has_value()) {
        Assign(replica + 1, left ^ own, std::max(end, *answer.end_ns), any_empty || (own == 0 && !too_few),
               absl::StrCat(text, "replica ", replica, "\n", answer.text));
      }
    }
    if (own == 0) break;
  }
}

BruteForceAnswer Enumeration::Run() {
  Assign(0, (SampleMask{1} << samples_.size()) - 1, 0, false, "");
  return best_;
}

}  // namespace

BruteForceAnswer BruteForce(const CostModel& costs, const Job& job, absl::Span<const SampleTokens> samples,
                            const BruteForceOptions& options) {
  return Enumeration(costs, job, samples, options, /*fixed_schedule=*/false).Run();
}

BruteForceAnswer BruteForceOneForwardOneBackward(const CostModel& costs, const Job& job,
                                                 absl::Span<const SampleTokens> samples, int64_t at_most_ns) {
  return Enumeration(costs, job, samples, {at_most_ns, 0}, /*fixed_schedule=*/true).Run();
}

SmallPipeline MakePackedPipeline(const CostModel& costs, const Job& job,
                                 absl::Span<const SampleTokens> samples,
                                 const std::vector<std::vector<uint32_t>>& micro_batches) {
  std::vector<SmallMicroBatch> made;
  made.reserve(micro_batches.size());
  for (const auto& list : micro_batches) {
    made.push_back(*MakeMicroBatch(costs, job, samples, list, Layout::kPacked, /*replica=*/0));
  }
  std::vector<const SmallMicroBatch*> pointers;
  pointers.reserve(made.size());
  for (const SmallMicroBatch& micro_batch : made) pointers.push_back(&micro_batch);
  return MakePipeline(costs, job, /*replica=*/0, pointers);
}

int64_t OneForwardOneBackwardMakespan(const CostModel& costs, const Job& job,
                                      absl::Span<const SampleTokens> samples,
                                      const std::vector<std::vector<uint32_t>>& micro_batches) {
  std::vector<int> order(micro_batches.size());
  std::iota(order.begin(), order.end(), 0);
  return OneForwardOneBackwardEnd(MakePackedPipeline(costs, job, samples, micro_batches), order) +
         OptimizerNs(costs);
}

}  // namespace penstock::core
