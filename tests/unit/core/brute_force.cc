#include "tests/unit/core/brute_force.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/model/share.h"
#include "planner/core/schedule/stage_bytes.h"
#include "tests/unit/core/brute_force_exact.h"

namespace penstock::core {
namespace {

using Mask = uint32_t;
using Groups = std::vector<Mask>;

// A micro-batch with everything that a schedule depends on.
struct SmallMicroBatch {
  Mask samples = 0;
  Layout layout = Layout::kPacked;
  std::vector<Span> spans;
  std::vector<SmallPass> passes;
};

// Every (selective, full) that the job allows for a stage, but for those that cost more and keep no less.
std::vector<PassChoice> Choices(const CostModel& costs, const Job& job, int stage,
                                absl::Span<const LayerCosts> layers, const StageMemory& memory,
                                int64_t kept_besides) {
  const int count = costs.stage(stage).layers();
  std::vector<StageRecompute> allowed;
  for (int full = 0; full <= count; ++full) {
    for (int selective = 0; full + selective <= count; ++selective) {
      const bool none = full == 0 && selective == 0;
      if (job.recompute == RecomputeMode::kNone && !none) continue;
      if (job.recompute == RecomputeMode::kSelective && selective != count) continue;
      if (job.recompute == RecomputeMode::kFull && full != count) continue;
      if (job.recompute == RecomputeMode::kAuto && selective > 0 && !costs.has_selective()) continue;
      allowed.push_back({selective, full});
    }
  }
  std::vector<PassChoice> all;
  all.reserve(allowed.size());
  for (const StageRecompute& recompute : allowed) {
    int64_t slowest = 0;
    for (const LayerCosts& share : layers)
      slowest = std::max(slowest, costs.BackwardNs(stage, share, recompute));
    all.push_back({slowest, costs.StoredBytes(stage, memory, recompute) + kept_besides, recompute});
  }
  std::sort(all.begin(), all.end(), [](const PassChoice& a, const PassChoice& b) {
    return std::pair(a.backward_ns, a.kept_bytes) < std::pair(b.backward_ns, b.kept_bytes);
  });
  std::vector<PassChoice> useful;
  for (const PassChoice& choice : all) {
    if (useful.empty() || choice.kept_bytes < useful.back().kept_bytes) useful.push_back(choice);
  }
  return useful;
}

int64_t OptimizerNs(const CostModel& costs) {
  int64_t longest = 0;
  for (int rank = 0; rank < costs.positions(); ++rank)
    longest = std::max(longest, costs.WholeIterationNs(rank));
  return longest;
}

// What each context rank has of a micro-batch. `spans`: of its rows; empty where there is one context rank.
std::vector<Share> SharesWith(const CostModel& costs, absl::Span<const SampleTokens> tokens,
                              const std::vector<uint32_t>& list, Layout layout,
                              const std::vector<Span>& spans) {
  if (spans.empty()) return {WholeShare(SumsOf(list, tokens, layout))};
  std::vector<Share> shares;
  SharesOf(RowsOf(list, tokens, layout, {}), tokens, spans, costs.nodes(), costs.group().context, &shares);
  return shares;
}

// Until every rank of the next group has what its like sends it, and until the first has.
void SetTransfer(const CostModel& costs, const std::vector<Share>& shares, int replica, int stage,
                 SmallPass* pass) {
  const int tensors = costs.group().tensor;
  pass->link_ns = std::numeric_limits<int64_t>::max();
  for (int place = 0; place < costs.group().ranks(); ++place) {
    const int64_t bytes = costs.BoundaryBytes(stage, shares[place / tensors].sums, place % tensors);
    const int from = costs.topology().RankOf(replica, stage, place);
    const int64_t ns = costs.TransferNs(bytes, from, costs.topology().RankOf(replica, stage + 1, place));
    pass->transfer_ns = std::max(pass->transfer_ns, ns);
    pass->link_ns = std::min(pass->link_ns, ns);
  }
}

// Nothing when the shape is outside of the profile. Passes take as long as the slowest context rank; memory
// is that of the fullest one, element by element.
std::optional<SmallMicroBatch> MakeMicroBatch(const CostModel& costs, const Job& job,
                                              absl::Span<const SampleTokens> tokens,
                                              const std::vector<uint32_t>& list, Layout layout, int replica,
                                              const std::vector<Span>& spans = {}) {
  const std::vector<Share> shares = SharesWith(costs, tokens, list, layout, spans);
  std::vector<LayerCosts> layers(shares.size());
  for (size_t context = 0; context < shares.size(); ++context) {
    if (!costs.Layers(shares[context], &layers[context])) return std::nullopt;
  }
  SmallMicroBatch result;
  result.layout = layout;
  result.spans = spans;
  for (int s = 0; s < costs.stages(); ++s) {
    const StageMemory memory = LargestMemory(costs, s, shares);
    const bool receives = s > 0 && costs.position_of(s) != costs.position_of(s - 1);
    const bool sends = s + 1 < costs.stages() && costs.position_of(s) != costs.position_of(s + 1);
    const int64_t input = receives ? memory.input : 0;
    const int64_t output = sends ? memory.output : 0;
    SmallPass pass;
    for (const LayerCosts& share : layers) {
      pass.forward_ns = std::max(pass.forward_ns, costs.ForwardNs(s, share));
      pass.weight_ns = std::max(pass.weight_ns, costs.WeightNs(s, share));
    }
    pass.choices = Choices(costs, job, s, layers, memory, input + memory.tokens);
    const auto slow_down = [&](int64_t* ns) {
      *ns = costs.slow_groups().Slowed(*ns, replica, costs.position_of(s));
    };
    slow_down(&pass.forward_ns);
    slow_down(&pass.weight_ns);
    for (PassChoice& choice : pass.choices) slow_down(&choice.backward_ns);
    pass.forward_bytes = output + memory.forward_peak();
    pass.backward_bytes = memory.backward_peak() + input + output;
    pass.put_aside_bytes = costs.PutAsideBytes(s, memory) + memory.tokens;
    pass.received_bytes = input;
    pass.memory = memory;
    if (sends) SetTransfer(costs, shares, replica, s, &pass);
    result.passes.push_back(std::move(pass));
  }
  return result;
}

// All placements of so many rows of these lengths; one, without spans, where there is one context rank.
void ForEachPlacement(int contexts, absl::Span<const Row> rows, std::vector<Span>* spans,
                      const std::function<void()>& visit) {
  if (contexts == 1 || spans->size() == rows.size()) return visit();
  const int64_t length = rows[spans->size()].length;
  for (int ranks = 1; ranks <= contexts && (ranks == 1 || length >= 2 * ranks); ranks *= 2) {
    for (int first = 0; first < contexts; first += ranks) {
      spans->push_back({first, ranks});
      ForEachPlacement(contexts, rows, spans, visit);
      spans->pop_back();
    }
  }
}

// Leaves out what does not fit even if the micro-batch is alone on the rank. Keeps one, for those that have
// none.
void DropWhatNeverFits(int64_t available_bytes, SmallPass* pass) {
  std::vector<PassChoice>& choices = pass->choices;
  while (choices.size() > 1 && choices.front().kept_bytes + pass->backward_bytes > available_bytes) {
    choices.erase(choices.begin());
  }
}

SmallPipeline MakePipeline(const CostModel& costs, const Job& job,
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
  for (int rank = 0; rank < costs.positions(); ++rank) {
    pipeline.available_bytes.push_back(job.memory_limit_bytes - costs.RankStaticBytes(rank));
  }
  for (size_t i = 0; i < pipeline.passes.size(); ++i) {
    const int rank = costs.position_of(static_cast<int>(i) % pipeline.stages);
    DropWhatNeverFits(pipeline.available_bytes[rank], &pipeline.passes[i]);
  }
  // The stages of a rank reduce one after another, the last one first.
  std::vector<int64_t> rank_reduce(costs.positions(), 0);
  for (int s = 0; s < costs.stages(); ++s) {
    int64_t& reduce = rank_reduce[costs.position_of(s)];
    reduce += costs.ReduceNs(s);
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

  // Replicas whose links are equally fast share answers, unless some of their ranks are slow.
  int64_t ClassOf(int replica) const;
  // All layouts and placements that may be of use.
  std::vector<SmallMicroBatch> Layouts(Mask samples, int replica) const;
  void Keep(SmallMicroBatch micro_batch, std::vector<SmallMicroBatch>* kept) const;
  const ReplicaAnswer& BestReplica(Mask samples, int replica);
  void TryGroups(const Groups& groups, int replica, int64_t limit, ReplicaAnswer* answer);
  void TryPipeline(const std::vector<const SmallMicroBatch*>& micro_batches, int64_t limit,
                   ReplicaAnswer* answer);
  void Assign(int replica, Mask left, int64_t end, const std::string& text);

  const CostModel& costs_;
  const Job& job_;
  absl::Span<const SampleTokens> samples_;
  int64_t nodes_;
  bool any_;
  bool exact_;
  bool fixed_schedule_;
  // Ends before it are looked for; of the last reduction of gradients.
  int64_t limit_ns_;
  std::map<std::pair<Mask, int64_t>, ReplicaAnswer> replicas_;
  BruteForceAnswer best_;
};

int64_t Enumeration::ClassOf(int replica) const {
  if (costs_.slow_groups().AnyOf(replica) || costs_.slow_links().any()) return -1 - replica;
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

// Whether no pass without recompute and no transfer of `a` is slower: all that counts where memory is plenty.
bool NoSlower(const SmallMicroBatch& a, const SmallMicroBatch& b) {
  for (size_t s = 0; s < a.passes.size(); ++s) {
    const SmallPass& x = a.passes[s];
    const SmallPass& y = b.passes[s];
    const int64_t x_input = x.choices.front().backward_ns - x.weight_ns;
    const int64_t y_input = y.choices.front().backward_ns - y.weight_ns;
    if (x.forward_ns > y.forward_ns || x.transfer_ns > y.transfer_ns || x.link_ns > y.link_ns ||
        x.weight_ns > y.weight_ns || x.choices.front().backward_ns > y.choices.front().backward_ns ||
        x_input > y_input) {
      return false;
    }
  }
  return true;
}

// True when `a` can stand for `b` everywhere.
bool NoWorse(const SmallMicroBatch& a, const SmallMicroBatch& b) {
  for (size_t s = 0; s < a.passes.size(); ++s) {
    const SmallPass& x = a.passes[s];
    const SmallPass& y = b.passes[s];
    const bool worse = x.forward_ns > y.forward_ns || x.transfer_ns > y.transfer_ns ||
                       x.link_ns > y.link_ns || x.forward_bytes > y.forward_bytes ||
                       x.backward_bytes > y.backward_bytes || x.put_aside_bytes > y.put_aside_bytes ||
                       x.weight_ns > y.weight_ns;
    const bool larger = x.memory.peak > y.memory.peak || x.memory.input > y.memory.input ||
                        x.memory.output > y.memory.output || x.memory.tokens > y.memory.tokens;
    if (worse || larger || x.choices.size() != y.choices.size()) return false;
    for (size_t c = 0; c < x.choices.size(); ++c) {
      if (x.choices[c].backward_ns > y.choices[c].backward_ns) return false;
      if (x.choices[c].backward_ns - x.weight_ns > y.choices[c].backward_ns - y.weight_ns) return false;
      if (x.choices[c].kept_bytes > y.choices[c].kept_bytes) return false;
    }
  }
  return true;
}

std::vector<SmallMicroBatch> Enumeration::Layouts(Mask samples, int replica) const {
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

void Enumeration::TryPipeline(const std::vector<const SmallMicroBatch*>& micro_batches, int64_t limit,
                              ReplicaAnswer* answer) {
  const SmallPipeline pipeline = MakePipeline(costs_, job_, micro_batches);
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
  for (const Mask group : groups) layouts.push_back(Layouts(group, replica));
  std::vector<const SmallMicroBatch*> chosen;
  const std::function<void()> choose = [&] {
    if (chosen.size() == layouts.size()) return TryPipeline(chosen, limit, answer);
    for (const SmallMicroBatch& micro_batch : layouts[chosen.size()]) {
      chosen.push_back(&micro_batch);
      choose();
      chosen.pop_back();
    }
  };
  choose();
}

// Calls `visit` for every division of the samples in `left` into groups.
void ForEachGrouping(Mask left, Groups* groups, const std::function<void()>& visit) {
  if (left == 0) return visit();
  const Mask first = left & (~left + 1);
  const Mask rest = left ^ first;
  // Every subset of the rest joins the first sample.
  for (Mask others = rest;; others = (others - 1) & rest) {
    groups->push_back(first | others);
    ForEachGrouping(rest ^ others, groups, visit);
    groups->pop_back();
    if (others == 0) break;
  }
}

const Enumeration::ReplicaAnswer& Enumeration::BestReplica(Mask samples, int replica) {
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

void Enumeration::Assign(int replica, Mask left, int64_t end, const std::string& text) {
  if (!best_.complete || end >= limit_ns_ || (any_ && best_.found)) return;
  if (replica == job_.topology.replicas()) {
    if (left != 0) return;
    limit_ns_ = end;
    best_.found = true;
    best_.makespan_ns = end + OptimizerNs(costs_);
    best_.text = text;
    return;
  }
  const bool may_be_empty = static_cast<int>(samples_.size()) < job_.topology.replicas();
  for (Mask own = left;; own = (own - 1) & left) {
    const bool last = replica + 1 == job_.topology.replicas();
    if ((own != 0 || may_be_empty) && (!last || own == left)) {
      // An empty replica only takes part in the reduction.
      ReplicaAnswer empty;
      empty.end_ns = 0;
      const ReplicaAnswer& answer = own == 0 ? empty : BestReplica(own, replica);
      if (answer.end_ns.has_value()) {
        Assign(replica + 1, left ^ own, std::max(end, *answer.end_ns),
               absl::StrCat(text, "replica ", replica, "\n", answer.text));
      }
    }
    if (own == 0) break;
  }
}

BruteForceAnswer Enumeration::Run() {
  Assign(0, (Mask{1} << samples_.size()) - 1, 0, "");
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
  return MakePipeline(costs, job, pointers);
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
