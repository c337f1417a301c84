// Rules 5 and 8: passes of stage groups of several ranks. What a rank exchanges with its group inside a pass
// follows from the tokens that it has (execution.md, section 7), and the group takes as long as its slowest
// rank.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// Gathers and sums over tensor ranks, of all source tokens and of all target tokens of a context rank.
struct Halves {
  uint64_t source = 0;
  uint64_t target = 0;
};

// What a pass moves, bytes.
struct Moved {
  uint64_t tensor = 0;
  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t expert = 0;
};

class Exchange {
 public:
  Exchange(const PlanIndex& index, int rank)
      : index_(index),
        plan_(index.plan()),
        rank_(rank),
        t5_(plan_.model().architecture() == v1::ARCHITECTURE_T5),
        mesh_(index.MeshOfRank(rank)),
        key_value_bytes_(KeyValueBytes(plan_.model(), mesh_.tensors)) {}

  Moved Of(const v1::Instruction& pass) const {
    if (pass.op() == v1::OP_BACKWARD_WEIGHT || pass.op() == v1::OP_RECOMPUTE) return {};
    const bool forward = pass.op() == v1::OP_FORWARD;
    const Share& share = index_.ShareOf(index_.ReplicaOf(rank_), pass.micro_batch(), index_.ContextOf(rank_));
    Moved moved;
    if (mesh_.tensors > 1) {
      const Halves halves = forward ? ForwardHalves(pass) : BackwardHalves(pass);
      moved.tensor = halves.source * HalfBytes(share.source);
      for (const uint64_t tokens : share.part_targets) moved.tensor += halves.target * HalfBytes(tokens);
    }
    const uint64_t layers = mesh_.layers(pass.stage()) * key_value_bytes_;
    for (const uint64_t tokens : InPass(share, pass, forward))
      moved.expert += ExpertBytes(pass, forward, tokens);
    moved.sent = layers * share.sent;
    moved.received = layers * share.received;
    // Keys and values once more, and their gradients the other way.
    if (!forward) moved.sent = moved.received = moved.sent + moved.received;
    return moved;
  }

  // Target tokens of the parts in which the pass goes through the share.
  std::vector<uint64_t> InPass(const Share& share, const v1::Instruction& pass, bool forward) const {
    const v1::MicroBatch& micro_batch =
        plan_.replicas(index_.ReplicaOf(rank_)).micro_batches(static_cast<int>(pass.micro_batch()));
    if (forward || !micro_batch.whole_backward()) return share.part_targets;
    return {share.target};
  }

  // Of the pass's stage, in a model with experts.
  uint64_t LayersWithExperts(const v1::Instruction& pass) const {
    const uint64_t layers = mesh_.layers(pass.stage());
    return layers - DenseLayers(pass, layers);
  }

 private:
  const v1::StageTopology& StageOf(const v1::Instruction& pass) const {
    return plan_.topology().replicas(index_.ReplicaOf(rank_)).stages(static_cast<int>(pass.stage()));
  }

  // Of the lowest so many layers of the pass's stage, those without experts in a model with experts.
  uint64_t DenseLayers(const v1::Instruction& pass, uint64_t lowest) const {
    uint64_t before = 0;
    for (uint32_t stage = 0; stage < pass.stage(); ++stage) before += mesh_.layers(stage);
    const auto& dense = plan_.model().dense_layers();
    return static_cast<uint64_t>(std::count_if(dense.begin(), dense.end(), [&](uint32_t layer) {
      return layer > before && layer <= before + lowest;
    }));
  }

  // Rows of a part's tokens of a context rank to experts on other ranks and back, in each layer that has
  // experts; gradients of rows have 16 bytes more, and a layer that is run again sends rows once more.
  uint64_t ExpertBytes(const v1::Instruction& pass, bool forward, uint64_t tokens) const {
    const uint64_t expert = mesh_.experts;
    if (expert == 1) return 0;
    const uint64_t row = plan_.model().hidden() * ElementBytes(plan_.model().dtype());
    const auto each = [&](uint64_t row_bytes) {
      return 2 * (tokens * plan_.model().experts_per_token() * row_bytes * (expert - 1) /
                  (expert * mesh_.tensors));
    };
    const uint64_t layers = LayersWithExperts(pass);
    const uint64_t full = FullLayers(pass) - DenseLayers(pass, FullLayers(pass));
    return forward ? layers * each(row) : layers * each(row + 16) + full * each(row);
  }

  uint64_t FullLayers(const v1::Instruction& pass) const {
    return plan_.replicas(index_.ReplicaOf(rank_))
        .micro_batches(static_cast<int>(pass.micro_batch()))
        .recompute(static_cast<int>(pass.stage()))
        .full_layers();
  }

  // Of a layer without experts: attention and feed-forward.
  static constexpr uint64_t kDenseParts = 2;

  // Of decoder layers, whose feed-forward parts exchange nothing over tensor ranks where ranks divide
  // experts, unless all tokens share one beside them.
  uint64_t Parts() const {
    if (t5_) return 3;
    return mesh_.experts > 1 && plan_.model().shared_expert_ffn() == 0 ? 1 : 2;
  }

  Halves ForwardHalves(const v1::Instruction& pass) const {
    const uint64_t decoders = StageOf(pass).decoder_layers();
    return OfLayers(StageOf(pass).encoder_layers(), decoders, DenseLayers(pass, decoders), EndsOf(pass));
  }

  // Of layers that run forward, `dense` among those of the decoder, added to `halves`.
  Halves OfLayers(uint64_t encoders, uint64_t decoders, uint64_t dense, Halves halves) const {
    halves.source += 4 * encoders + (t5_ ? decoders : 0);
    halves.target += 2 * (Parts() * (decoders - dense) + kDenseParts * dense);
    return halves;
  }

  // Three of each part of a layer; of a layer that is run again its forward pass's, too.
  Halves BackwardHalves(const v1::Instruction& pass) const {
    const uint64_t encoders = StageOf(pass).encoder_layers(), decoders = StageOf(pass).decoder_layers();
    const uint64_t full = FullLayers(pass);
    const uint64_t full_encoders = std::min(full, encoders);
    Halves halves = OfLayers(full_encoders, full - full_encoders, DenseLayers(pass, full), EndsOf(pass));
    const uint64_t dense = DenseLayers(pass, decoders);
    halves.source += 6 * encoders + (t5_ ? 2 * decoders : 0);
    halves.target += 3 * (Parts() * (decoders - dense) + kDenseParts * dense);
    return halves;
  }

  // Of embeddings, and of the head, which is run in both directions in its forward pass.
  Halves EndsOf(const v1::Instruction& pass) const {
    Halves ends;
    if (t5_ && pass.stage() == 0) ends.source = 1;
    if (index_.EmbedsTarget(index_.ReplicaOf(rank_), pass.stage())) ends.target = 1;
    const bool last = static_cast<int>(pass.stage()) + 1 == mesh_.stages();
    if (last && pass.op() == v1::OP_FORWARD) ends.target += 2;
    return ends;
  }

  uint64_t HalfBytes(uint64_t tokens) const {
    const uint64_t bytes = tokens * plan_.model().hidden() * ElementBytes(plan_.model().dtype());
    return bytes * (mesh_.tensors - 1) / mesh_.tensors;
  }

  const PlanIndex& index_;
  const v1::Plan& plan_;
  const int rank_;
  const bool t5_;
  const ReplicaMesh& mesh_;
  const uint64_t key_value_bytes_;
};

bool MakesBeside(const v1::PassExchange& exchange) {
  return exchange.products_beside_return() > 0 || exchange.products_beside_arrival() > 0 ||
         exchange.others_beside_arrival();
}

bool IsEmpty(const v1::PassExchange& exchange) {
  return exchange.tensor_bytes() == 0 && exchange.tensor_ns() == 0 && exchange.context_sent_bytes() == 0 &&
         exchange.context_received_bytes() == 0 && exchange.context_ns() == 0 &&
         exchange.context_exposed_ns() == 0 && exchange.expert_bytes() == 0 && exchange.expert_ns() == 0 &&
         exchange.expert_exposed_ns() == 0 && !MakesBeside(exchange);
}

void CheckMoved(const Exchange& expected, int rank, const v1::Instruction& pass, Report& report) {
  const v1::PassExchange& exchange = pass.exchange();
  const Moved moved = expected.Of(pass);
  const auto expect = [&](const char* field, uint64_t found, uint64_t right) {
    if (found != right)
      report.AddAt(kCollectives, rank, pass,
                   absl::StrCat("exchange.", field, " is ", found, ", expected ", right));
  };
  expect("tensor_bytes", exchange.tensor_bytes(), moved.tensor);
  expect("context_sent_bytes", exchange.context_sent_bytes(), moved.sent);
  expect("context_received_bytes", exchange.context_received_bytes(), moved.received);
  expect("expert_bytes", exchange.expert_bytes(), moved.expert);
  if (pass.has_exchange() && IsEmpty(exchange))
    report.AddAt(kCollectives, rank, pass, "exchange is set, but nothing is exchanged");
}

// What is exchanged takes time within the rank's own.
void CheckExchangeTimes(int rank, const v1::Instruction& pass, Report& report) {
  const v1::PassExchange& exchange = pass.exchange();
  const int64_t tensor = exchange.tensor_ns(), exposed = exchange.context_exposed_ns();
  const int64_t expert = exchange.expert_exposed_ns();
  const bool sound = tensor >= 0 && exposed >= 0 && expert >= 0 && exposed <= exchange.context_ns() &&
                     expert <= exchange.expert_ns() && tensor <= pass.own_duration_ns() &&
                     exposed <= pass.own_duration_ns() - tensor &&
                     expert <= pass.own_duration_ns() - tensor - exposed;
  if (!sound)
    report.AddAt(kPredictions, rank, pass,
                 absl::StrCat("exchange takes ", tensor, " ns over tensor ranks and ", exposed, " ns of ",
                              exchange.context_ns(), " over context ranks, and ", expert, " ns of ",
                              exchange.expert_ns(), " with other ranks' experts, own_duration_ns is ",
                              pass.own_duration_ns()));
}

// Products of weights are named beside the exchanges of backward passes alone, of experts that the rank has,
// and not of micro-batches whose backward passes go in parts, and make them all.
void CheckBeside(const PlanIndex& index, int rank, const v1::Instruction& pass, uint64_t layers_with_experts,
                 Report& report) {
  const v1::PassExchange& exchange = pass.exchange();
  if (!MakesBeside(exchange)) return;
  const v1::Plan& plan = index.plan();
  const bool backward = pass.op() == v1::OP_BACKWARD || pass.op() == v1::OP_BACKWARD_INPUT;
  const uint64_t ranks = index.MeshOfRank(rank).experts;
  if (!backward || ranks == 1 || layers_with_experts == 0) {
    report.AddAt(kCollectives, rank, pass,
                 "exchange puts products of weights beside an exchange of gradients of rows that it has not");
    return;
  }
  const v1::MicroBatch& micro_batch =
      plan.replicas(index.ReplicaOf(rank)).micro_batches(static_cast<int>(pass.micro_batch()));
  if (!micro_batch.part_rows().empty() && !micro_batch.whole_backward()) {
    report.AddAt(kCollectives, rank, pass,
                 "exchange names products of weights, but the micro-batch is in parts");
    return;
  }
  const bool gated = plan.model().feed_forward() == v1::FEED_FORWARD_GATED_GELU ||
                     plan.model().feed_forward() == v1::FEED_FORWARD_GATED_SILU;
  const uint64_t products = plan.model().experts() / ranks * (gated ? 3 : 2);
  const uint64_t named = uint64_t{exchange.products_beside_return()} + exchange.products_beside_arrival();
  if (named > products)
    report.AddAt(kCollectives, rank, pass,
                 absl::StrCat("exchange puts ", named, " products of experts beside exchanges, the rank has ",
                              products));
}

// The longest own time of each pass of each group, by Collective.sequence.
class LongestPasses {
 public:
  explicit LongestPasses(const PlanIndex& index) : longest_(index.plan().groups_size()) {}

  void See(const v1::Instruction& pass) {
    int64_t* const longest = Find(pass);
    if (longest != nullptr) *longest = std::max(*longest, pass.own_duration_ns());
  }

  void Check(int rank, const v1::Instruction& pass, Report& report) {
    const int64_t* const longest = Find(pass);
    if (longest == nullptr || pass.expected_duration_ns() == *longest) return;
    report.AddAt(kPredictions, rank, pass,
                 absl::StrCat("expected_duration_ns is ", pass.expected_duration_ns(),
                              ", the longest own_duration_ns of its stage group is ", *longest));
  }

 private:
  // Null where group or sequence are wrong, which rule 5 reports.
  int64_t* Find(const v1::Instruction& pass) {
    const v1::Collective& collective = pass.collective();
    if (collective.group() >= longest_.size() || collective.sequence() > pass.id()) return nullptr;
    std::vector<int64_t>& of_group = longest_[collective.group()];
    if (of_group.size() <= collective.sequence()) of_group.resize(collective.sequence() + 1, 0);
    return &of_group[collective.sequence()];
  }

  std::vector<std::vector<int64_t>> longest_;
};

}  // namespace

void CheckJointPasses(const PlanIndex& index, Report& report) {
  LongestPasses longest(index);
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank) {
    if (index.MeshOfRank(rank).group_ranks() == 1) continue;
    const Exchange exchange(index, rank);
    for (const v1::Instruction& instruction : index.program(rank).instructions()) {
      if (!IsPass(instruction.op())) continue;
      CheckMoved(exchange, rank, instruction, report);
      CheckExchangeTimes(rank, instruction, report);
      CheckBeside(index, rank, instruction, exchange.LayersWithExperts(instruction), report);
      longest.See(instruction);
    }
  }
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank) {
    if (index.MeshOfRank(rank).group_ranks() == 1) continue;
    for (const v1::Instruction& instruction : index.program(rank).instructions())
      if (IsPass(instruction.op())) longest.Check(rank, instruction, report);
  }
}

}  // namespace penstock::core::verify
