// What of the exchange of experts' rows ranks wait for, and what an iteration takes, by the order in which
// passes do things: everything in order; experts alone cut in parts (Hwang et al., "Tutel", MLSys 2023);
// weights beside exchanges; both ways of Lancet (Jiang et al., MLSys 2024): these and forward passes in
// parts; ours, with backward passes in parts, too, where that is faster; and what no order can be faster
// than, all rows beside all that is computed.
//
//   exchange_orders_bench PROFILE.json LENGTHS.csv REPLICAS CONTEXTS
//
// All samples (lines of input, target) are one global batch; the experts are divided over all context ranks,
// there is one stage. Prints a JSON object: of each order the iteration's milliseconds, and of all passes of
// a rank, in the mean over the ranks, those that it waits for rows. Orders other than in order and ours are
// of the plan in order: what they change is what its passes take.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/micro_batch_shares.h"
#include "planner/core/cost/profile_reader.h"
#include "planner/core/placement/row_parts.h"
#include "planner/core/planner.h"

namespace penstock::core {
namespace {

constexpr int64_t kMemoryBytes = int64_t{1} << 40;
// What Lancet's own cost model counts for a layer whose experts ran in parts, whatever is in them: a whole
// backward pass needs what they kept in one piece ("redispatch", in its public source). Ours copies that
// (execution.md, section 7, "Whole backward passes").
constexpr int64_t kMergeNs = 100'000;

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  if (!file) {
    std::cerr << path << ": cannot be read\n";
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

v1::Batch ReadBatch(const char* path) {
  std::istringstream lines(ReadAll(path));
  v1::Batch batch;
  uint32_t input = 0, target = 0;
  char comma = 0;
  while (lines >> input >> comma >> target) {
    v1::Sample* const sample = batch.add_samples();
    sample->set_sample_id(static_cast<uint64_t>(batch.samples_size()) - 1);
    sample->set_input_tokens(input);
    sample->set_target_tokens(target);
  }
  return batch;
}

template <typename Value>
Value OrExit(absl::StatusOr<Value> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << value.status() << "\n";
  std::exit(1);
}

// What a pass takes, and what of it is waiting for rows, nanoseconds.
struct PassTime {
  int64_t ns = 0;
  int64_t waiting_ns = 0;
};

// Of one rank's share of a micro-batch.
struct ShareTimes {
  PassTime forward;
  PassTime backward;

  int64_t ns() const { return forward.ns + backward.ns; }
};

// One rank's share: whole, and in 2, 3 and 4 parts; and of these with a whole backward pass.
struct ShareOfRank {
  LayerCosts whole;
  std::vector<LayerCosts> in_parts;
  std::vector<LayerCosts> joined;
  double tokens = 0;
};

class Orders {
 public:
  Orders(const CostModel& costs) : costs_(costs), layers_(costs.stage(0).decoder_layers) {}

  ShareTimes InOrder(const ShareOfRank& share) const {
    return {Times(share.whole, /*forward=*/true, 0), Times(share.whole, /*forward=*/false, 0)};
  }
  // What no order can be faster than: all rows beside all that the pass computes.
  ShareTimes Perfect(const ShareOfRank& share) const {
    ShareTimes times = InOrder(share);
    for (PassTime* const pass : {&times.forward, &times.backward}) {
      const int64_t computed = pass->ns - pass->waiting_ns;
      *pass = {std::max(computed, pass->waiting_ns), std::max<int64_t>(0, pass->waiting_ns - computed)};
    }
    return times;
  }
  ShareTimes Weights(const ShareOfRank& share) const {
    return {Times(share.whole, /*forward=*/true, 0), Times(share.whole, /*forward=*/false, 1)};
  }
  // Forward in `parts`, 1 to 4; backward whole, of what is copied together in each layer.
  ShareTimes Lancet(const ShareOfRank& share, size_t parts) const {
    const LayerCosts& layers = parts == 1 ? share.whole : share.joined[parts - 2];
    return {Times(layers, /*forward=*/true, 1), Times(layers, /*forward=*/false, 1)};
  }
  // The same if that takes so long.
  ShareTimes Merged(const ShareOfRank& share, size_t parts, int64_t merge_ns) const {
    const LayerCosts& forward = parts == 1 ? share.whole : share.in_parts[parts - 2];
    ShareTimes times = {Times(forward, /*forward=*/true, 1), Times(share.whole, /*forward=*/false, 1)};
    if (parts > 1) times.backward.ns += merge_ns * layers_;
    return times;
  }
  // The tokens of the experts in so many chunks, whose exchanges and products overlap.
  ShareTimes Tutel(const ShareOfRank& share, int chunks) const {
    const double share_of_weights = WeightsOfExperts(share.whole);
    const ExchangeCosts& exchange = share.whole.exchange;
    const double forward = std::min(share_of_weights, share.whole.forward[kDecoder]);
    ShareTimes times = InOrder(share);
    Cut(share, chunks, forward, exchange.rows.ns, &times.forward);
    Cut(share, chunks, 2 * share_of_weights, exchange.row_gradients.ns, &times.backward);
    return times;
  }

 private:
  // `overlap`: how much of exchanges is hidden where it can be.
  PassTime Times(LayerCosts layers, bool forward, int overlap) const {
    if (overlap == 0) layers.exchange.beside = {};
    if (overlap == 0 && !layers.exchange.parts.empty()) layers.exchange.overlap = 0;
    if (forward) return {costs_.ForwardNs(0, layers), costs_.ForwardExchange(0, layers).expert_exposed_ns};
    return {costs_.BackwardNs(0, layers, {}), costs_.BackwardExchange(0, layers, {}).expert_exposed_ns};
  }

  // Of one layer: what products of experts take, once.
  double WeightsOfExperts(const LayerCosts& layers) const {
    return static_cast<double>(costs_.CostsOfPart(layers).experts_ns);
  }

  // Of a pass in order, whose experts compute so long in each layer.
  void Cut(const ShareOfRank& share, int chunks, double experts_ns, int64_t rows_ns, PassTime* pass) const {
    const int64_t latency = costs_.exchange_model().RowsLatencyNs();
    const double rows = static_cast<double>(rows_ns - latency) / chunks + static_cast<double>(latency);
    // Smaller products are less efficient, as the profile says.
    const double half = costs_.layer_model().form(kDecoder).half_efficiency_tokens;
    const double each = experts_ns * (1 + half * chunks / share.tokens) / (1 + half / share.tokens) / chunks;
    double line = 0, now = 0;
    std::vector<double> arrived;
    for (int chunk = 0; chunk < chunks; ++chunk) arrived.push_back(line += rows);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      now = std::max(now, arrived[chunk]) + each;
      line = std::max(line, now) + rows;
    }
    const double computed = each * chunks;
    const auto layers = static_cast<double>(layers_);
    const auto waiting = static_cast<int64_t>(layers * (line - computed));
    pass->ns += waiting - pass->waiting_ns + static_cast<int64_t>(layers * (computed - experts_ns));
    pass->waiting_ns = waiting;
  }

  const CostModel& costs_;
  const int64_t layers_;
};

// The plan's iteration with other times of its passes; of a rank, in the mean, what it waits for rows.
struct Outcome {
  double iteration_ms = 0;
  double waiting_ms = 0;
};

class Comparison {
 public:
  Comparison(const v1::JobSpec& job, const v1::Batch& batch)
      : job_(OrExit(JobFromProto(job))), batch_(OrExit(BatchFromProto(batch, job_))) {}

  // `plan`: of whole micro-batches.
  void Read(const CostModel& costs, const v1::Plan& plan) {
    RowParts row_parts(costs);
    for (const v1::Replica& replica : plan.replicas()) {
      auto& micro_batches = replicas_.emplace_back();
      for (const v1::MicroBatch& micro_batch : replica.micro_batches())
        micro_batches.push_back(SharesOf(costs, row_parts, micro_batch));
    }
  }

  // The best of the ways that `times(share, way)` gives, ways 1 to `ways`, micro-batch by micro-batch.
  template <typename TimesOf>
  Outcome OutcomeOf(const Orders& orders, int64_t makespan_ns, int ways, TimesOf times_of) const {
    const auto in_order = [&](const ShareOfRank& share, int) { return orders.InOrder(share); };
    const int64_t rest_ns = makespan_ns - Slowest(1, in_order).ns;
    const Slow slow = Slowest(ways, times_of);
    return {static_cast<double>(slow.ns + rest_ns) / 1e6,
            static_cast<double>(slow.waiting_ns) / 1e6 / static_cast<double>(job_.topology.ranks())};
  }

 private:
  struct Slow {
    // Passes of the slowest replica.
    int64_t ns = 0;
    // Of all ranks together.
    int64_t waiting_ns = 0;
  };

  std::vector<ShareOfRank> SharesOf(const CostModel& costs, RowParts& row_parts,
                                    const v1::MicroBatch& micro_batch) {
    std::vector<ShareOfRank> result;
    const SharesInParts whole = SharesIn(costs, micro_batch);
    for (const Share& share : whole.whole) {
      ShareOfRank& of_rank = result.emplace_back();
      of_rank.tokens = std::max(1.0, share.sums.target);
      costs.Layers(share, &of_rank.whole);
    }
    for (int parts = 2; parts <= 4; ++parts) {
      const SharesInParts cut = SharesIn(costs, InParts(row_parts, micro_batch, parts));
      for (size_t context = 0; context < result.size(); ++context) {
        for (const bool whole : {false, true}) {
          ShareOfRank& of_rank = result[context];
          LayerCosts& layers = (whole ? of_rank.joined : of_rank.in_parts).emplace_back();
          costs.Layers(cut.whole[context], cut.parts[context], whole, &layers);
        }
      }
    }
    return result;
  }

  SharesInParts SharesIn(const CostModel& costs, const v1::MicroBatch& micro_batch) const {
    return OrExit(
        ComputedShares(micro_batch, batch_, costs.nodes(), costs.group().context, costs.profile().windows));
  }

  // Packed. Unchanged where it has too few rows.
  v1::MicroBatch InParts(RowParts& row_parts, const v1::MicroBatch& whole, int parts) const {
    std::vector<Row> rows;
    std::vector<Span> spans;
    for (int row = 0; row < whole.samples_size(); ++row) {
      rows.emplace_back().length = batch_.samples[whole.samples(row)].target;
      spans.push_back(
          {static_cast<int32_t>(whole.span_first(row)), static_cast<int32_t>(whole.span_ranks(row))});
    }
    const PartOfRow part_of_row = row_parts.Divide(rows, spans, parts);
    v1::MicroBatch cut = whole;
    if (part_of_row.empty()) return cut;
    cut.clear_samples();
    cut.clear_span_first();
    cut.clear_span_ranks();
    cut.add_part_rows(0);
    for (int part = 0; part < parts; ++part) {
      for (int row = 0; row < whole.samples_size(); ++row) {
        if (part_of_row[row].part != part) continue;
        cut.add_samples(whole.samples(row));
        cut.add_span_first(whole.span_first(row));
        cut.add_span_ranks(whole.span_ranks(row));
      }
      cut.add_part_rows(static_cast<uint32_t>(cut.samples_size()));
    }
    return cut;
  }

  template <typename TimesOf>
  Slow Slowest(int ways, TimesOf times_of) const {
    Slow slow;
    for (const auto& micro_batches : replicas_) {
      int64_t replica_ns = 0;
      for (const std::vector<ShareOfRank>& ranks : micro_batches) {
        int64_t best_ns = std::numeric_limits<int64_t>::max(), best_waiting_ns = 0;
        for (int way = 1; way <= ways; ++way) {
          int64_t forward_ns = 0, backward_ns = 0, waiting_ns = 0;
          for (const ShareOfRank& share : ranks) {
            const ShareTimes times = times_of(share, way);
            forward_ns = std::max(forward_ns, times.forward.ns);
            backward_ns = std::max(backward_ns, times.backward.ns);
            waiting_ns += times.forward.waiting_ns + times.backward.waiting_ns;
          }
          if (forward_ns + backward_ns >= best_ns) continue;
          best_ns = forward_ns + backward_ns;
          best_waiting_ns = waiting_ns;
        }
        replica_ns += best_ns;
        slow.waiting_ns += best_waiting_ns;
      }
      slow.ns = std::max(slow.ns, replica_ns);
    }
    return slow;
  }

  const Job job_;
  const Batch batch_;
  // By replica, micro-batch and context rank.
  std::vector<std::vector<std::vector<ShareOfRank>>> replicas_;
};

Outcome OutcomeOfPlan(const v1::Plan& plan) {
  Outcome outcome{static_cast<double>(plan.predicted().makespan_ns()) / 1e6};
  for (const v1::Program& program : plan.programs())
    for (const v1::Instruction& instruction : program.instructions())
      outcome.waiting_ms += static_cast<double>(instruction.exchange().expert_exposed_ns()) / 1e6 /
                            static_cast<double>(plan.programs_size());
  return outcome;
}

v1::Plan PlanOf(v1::JobSpec job, const v1::Batch& batch, uint32_t most_parts, double overlap) {
  job.mutable_planning()->set_most_parts(most_parts);
  job.mutable_profile()->mutable_cluster()->set_exchange_overlap(overlap);
  return OrExit(OrExit(Planner::Create(job))->MakePlan(batch));
}

v1::JobSpec ReadJob(char** argv) {
  v1::ProfileFile file = OrExit(ParseProfile(ReadAll(argv[1])));
  v1::JobSpec job;
  job.set_job_id("exchange_orders");
  *job.mutable_model() = std::move(*file.mutable_model());
  *job.mutable_profile() = std::move(*file.mutable_profile());
  v1::Mesh* const mesh = job.mutable_mesh();
  mesh->set_pipeline(1);
  mesh->set_data(static_cast<uint32_t>(std::atoi(argv[3])));
  mesh->set_context(static_cast<uint32_t>(std::atoi(argv[4])));
  mesh->set_expert(mesh->context());
  v1::PlanningOptions* const planning = job.mutable_planning();
  planning->set_policy(v1::POLICY_DYNAMIC);
  planning->set_layout(v1::LAYOUT_CHOICE_PACKED);
  planning->set_recompute(v1::RECOMPUTE_NONE);
  planning->set_memory_limit_bytes(kMemoryBytes);
  planning->set_shard_optimizer_state(true);
  return job;
}

int Run(char** argv) {
  const v1::JobSpec job = ReadJob(argv);
  const v1::Batch batch = ReadBatch(argv[2]);
  const v1::Plan in_order = PlanOf(job, batch, 1, 0), ours = PlanOf(job, batch, 0, 1);
  v1::JobSpec beside = job;
  beside.mutable_profile()->mutable_cluster()->set_exchange_overlap(1);
  const std::unique_ptr<Planner> planner = OrExit(Planner::Create(beside));
  const CostModel& costs = planner->costs();
  Comparison comparison(beside, batch);
  comparison.Read(costs, in_order);
  const Orders orders(costs);
  const int64_t makespan = in_order.predicted().makespan_ns();
  const auto print = [](const Outcome& outcome) {
    return nlohmann::ordered_json{{"iteration_ms", outcome.iteration_ms}, {"waiting_ms", outcome.waiting_ms}};
  };
  nlohmann::ordered_json result;
  result["in order"] = print(OutcomeOfPlan(in_order));
  result["experts cut"] = print(comparison.OutcomeOf(
      orders, makespan, 3, [&](const ShareOfRank& share, int way) { return orders.Tutel(share, 1 << way); }));
  result["weights"] = print(comparison.OutcomeOf(
      orders, makespan, 1, [&](const ShareOfRank& share, int) { return orders.Weights(share); }));
  result["lancet"] = print(comparison.OutcomeOf(
      orders, makespan, 4, [&](const ShareOfRank& share, int way) { return orders.Lancet(share, way); }));
  const auto merged = [&](int64_t merge_ns) {
    return print(comparison.OutcomeOf(orders, makespan, 4, [&](const ShareOfRank& share, int way) {
      return orders.Merged(share, static_cast<size_t>(way), merge_ns);
    }));
  };
  result["lancet, 100 us"] = merged(kMergeNs);
  result["lancet, merged in no time"] = merged(0);
  result["perfect"] = print(comparison.OutcomeOf(
      orders, makespan, 1, [&](const ShareOfRank& share, int) { return orders.Perfect(share); }));
  result["ours"] = print(OutcomeOfPlan(ours));
  std::cout << result.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace penstock::core

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: exchange_orders_bench PROFILE.json LENGTHS.csv REPLICAS CONTEXTS\n";
    return 2;
  }
  return penstock::core::Run(argv);
}
