// Rule 2: both ends of every transfer agree, and all ranks list them in one order.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// The largest tensor anybody moves is far below; products beyond it count as wrong instead of wrapping
// around.
constexpr uint64_t kMaxElements = uint64_t{1} << 56;

std::optional<uint64_t> Product(const std::vector<uint64_t>& factors) {
  uint64_t product = 1;
  for (uint64_t factor : factors) {
    if (factor != 0 && product > kMaxElements / factor) return std::nullopt;
    product *= factor;
  }
  return product;
}

uint64_t LastOf(const google::protobuf::RepeatedField<uint32_t>& cu_seqlens) {
  return cu_seqlens.empty() ? 0 : cu_seqlens[cu_seqlens.size() - 1];
}

// Whether all layers up to the end of `stage` are of the encoder, so that the target has not entered yet.
bool IsEncoderBoundary(const v1::ModelSpec& model, const ReplicaMesh& mesh, uint32_t stage) {
  uint64_t layers = 0;
  for (uint32_t s = 0; s <= stage; ++s) layers += mesh.layers(s);
  return layers <= model.encoder_layers();
}

// The same between ranks of stage groups of several: the tokens that the place of `rank` has between layers.
std::optional<std::vector<uint64_t>> ShapeOfPlace(const PlanIndex& index, int rank, uint32_t micro_batch,
                                                  uint32_t stage) {
  const v1::Plan& plan = index.plan();
  const Share& share = index.ShareOf(index.ReplicaOf(rank), micro_batch, index.ContextOf(rank));
  const uint64_t source = TensorPart(share.source, index.TensorOf(rank), index.MeshOfRank(rank).tensors);
  const uint64_t target = TensorPart(share.target, index.TensorOf(rank), index.MeshOfRank(rank).tensors);
  const uint64_t hidden = plan.model().hidden();
  if (plan.model().architecture() != v1::ARCHITECTURE_T5) return std::vector<uint64_t>{target, hidden};
  if (IsEncoderBoundary(plan.model(), index.MeshOfRank(rank), stage))
    return std::vector<uint64_t>{source, hidden};
  const std::optional<uint64_t> elements = Product({source + target, hidden});
  if (!elements.has_value()) return std::nullopt;
  return std::vector<uint64_t>{*elements};
}

// The shape of what crosses the boundary after `stage`; nothing when it is too large to count.
std::optional<std::vector<uint64_t>> ExpectedShape(const v1::Plan& plan, const ReplicaMesh& mesh,
                                                   const v1::MicroBatch& micro_batch, uint32_t stage) {
  const uint64_t hidden = plan.model().hidden();
  const bool packed = micro_batch.layout() == v1::LAYOUT_PACKED;
  const bool encoder_decoder = plan.model().architecture() == v1::ARCHITECTURE_T5;
  const bool source_only = encoder_decoder && IsEncoderBoundary(plan.model(), mesh, stage);
  const auto& cu_seqlens = source_only ? micro_batch.source_cu_seqlens() : micro_batch.target_cu_seqlens();
  if (!encoder_decoder || source_only) {
    if (packed) return std::vector<uint64_t>{LastOf(cu_seqlens), hidden};
    const uint64_t length = source_only ? micro_batch.source_length() : micro_batch.target_length();
    return std::vector<uint64_t>{micro_batch.rows(), length, hidden};
  }
  const uint64_t tokens =
      packed ? LastOf(micro_batch.source_cu_seqlens()) + LastOf(micro_batch.target_cu_seqlens())
             : uint64_t{micro_batch.source_length()} + micro_batch.target_length();
  const std::optional<uint64_t> elements = Product({packed ? 1 : micro_batch.rows(), tokens, hidden});
  if (!elements.has_value()) return std::nullopt;
  return std::vector<uint64_t>{*elements};
}

v1::TransferKind KindOfPart(uint32_t part) {
  return part == kActivation ? v1::TRANSFER_KIND_ACTIVATION : v1::TRANSFER_KIND_GRADIENT;
}

// One end of the transfer over the boundary after `stage`.
void CheckEnd(const PlanIndex& index, int rank, const v1::Instruction& end, int peer, uint32_t stage,
              Report& report) {
  const v1::Transfer& transfer = end.transfer();
  const v1::Plan& plan = index.plan();
  const auto fail = [&](const std::string& message) { report.AddAt(kTransfers, rank, end, message); };
  if (transfer.peer() != static_cast<uint32_t>(peer))
    fail(absl::StrCat("its peer is rank ", transfer.peer(), ", but the stage at the other end is on rank ",
                      peer));
  if (transfer.kind() != KindOfPart(end.part())) fail("its kind does not agree with its part");
  if (transfer.dtype() != plan.model().dtype() || ElementBytes(transfer.dtype()) == 0)
    fail(absl::StrCat("its dtype is ", static_cast<int>(transfer.dtype()), ", the model's is ",
                      static_cast<int>(plan.model().dtype())));
  const v1::MicroBatch& micro_batch =
      plan.replicas(index.ReplicaOf(rank)).micro_batches(static_cast<int>(end.micro_batch()));
  const ReplicaMesh& mesh = index.MeshOfRank(rank);
  const auto expected = mesh.group_ranks() > 1 ? ShapeOfPlace(index, rank, end.micro_batch(), stage)
                                               : ExpectedShape(plan, mesh, micro_batch, stage);
  const std::vector<uint64_t> shape(transfer.shape().begin(), transfer.shape().end());
  if (!expected.has_value() || shape != *expected) {
    fail(absl::StrCat("its shape is [", absl::StrJoin(shape, ", "), "], the micro-batch needs [",
                      expected.has_value() ? absl::StrJoin(*expected, ", ") : "too many", "]"));
  }
  const std::optional<uint64_t> elements = Product(shape);
  if (!elements.has_value() || transfer.bytes() != *elements * ElementBytes(transfer.dtype()))
    fail(absl::StrCat("its bytes are ", transfer.bytes(), ", not those of its shape and dtype"));
}

void CheckAgreement(const TransferEnds& ends, Report& report) {
  const v1::Transfer& sent = ends.send->transfer();
  const v1::Transfer& received = ends.recv->transfer();
  const auto compare = [&](bool equal, const char* field) {
    if (!equal)
      report.AddAt(kTransfers, ends.recv_rank, *ends.recv,
                   absl::StrCat("its ", field, " differs from that of the SEND, rank ", ends.send_rank, ", ",
                                Describe(*ends.send)));
  };
  compare(
      std::equal(sent.shape().begin(), sent.shape().end(), received.shape().begin(), received.shape().end()),
      "shape");
  compare(sent.dtype() == received.dtype(), "dtype");
  compare(sent.bytes() == received.bytes(), "bytes");
  compare(sent.sequence() == received.sequence(), "sequence");
  compare(sent.order() == received.order(), "order");
}

void CheckTransfer(const PlanIndex& index, int replica, uint32_t stage, uint32_t micro_batch,
                   TransferPart part, int place, Report& report) {
  const TransferEnds ends = index.FindTransfer(replica, stage, micro_batch, part, place);
  if (!index.CrossesRanks(replica, stage)) return;
  if (ends.send != nullptr) CheckEnd(index, ends.send_rank, *ends.send, ends.recv_rank, stage, report);
  if (ends.recv != nullptr) CheckEnd(index, ends.recv_rank, *ends.recv, ends.send_rank, stage, report);
  if (ends.send != nullptr && ends.recv != nullptr) return CheckAgreement(ends, report);
  if (ends.send == nullptr && ends.recv == nullptr) {
    const std::string name =
        absl::StrCat(part == kActivation ? "activation" : "gradient", " of micro-batch ", micro_batch);
    report.AddAt(kTransfers, ends.send_rank,
                 absl::StrCat("the ", name, " is not sent to rank ", ends.recv_rank));
  } else if (ends.recv == nullptr) {
    report.AddAt(kTransfers, ends.send_rank, *ends.send,
                 absl::StrCat("rank ", ends.recv_rank, " has no RECV for it"));
  } else {
    report.AddAt(kTransfers, ends.recv_rank, *ends.recv,
                 absl::StrCat("rank ", ends.send_rank, " has no SEND for it"));
  }
}

// A SEND or RECV where no boundary between ranks is.
bool IsMisplaced(const PlanIndex& index, int rank, const v1::Instruction& transfer) {
  const int replica = index.ReplicaOf(rank);
  const bool upper_end = (transfer.op() == v1::OP_RECV) == (transfer.part() == kActivation);
  if (upper_end) return transfer.stage() == 0 || !index.CrossesRanks(replica, transfer.stage() - 1);
  return static_cast<int>(transfer.stage()) + 1 >= index.StagesOf(replica) ||
         !index.CrossesRanks(replica, transfer.stage());
}

// Sequence numbers count up from 0 for each (pair, direction); orders grow along each rank's list.
void CheckOrderOfRank(const PlanIndex& index, int rank, Report& report) {
  std::map<std::pair<int, uint32_t>, uint32_t> next_sequence;
  const v1::Instruction* previous = nullptr;
  for (const v1::Instruction& instruction : index.program(rank).instructions()) {
    if (instruction.op() != v1::OP_SEND && instruction.op() != v1::OP_RECV) continue;
    if (IsMisplaced(index, rank, instruction))
      report.AddAt(kTransfers, rank, instruction, "there is no stage on another rank at its other end");
    const v1::Transfer& transfer = instruction.transfer();
    const uint32_t expected = next_sequence[{instruction.op(), transfer.peer()}]++;
    if (transfer.sequence() != expected)
      report.AddAt(kTransfers, rank, instruction,
                   absl::StrCat("its sequence is ", transfer.sequence(), ", but it is number ", expected,
                                " with rank ", transfer.peer(), " in this direction"));
    if (previous != nullptr && transfer.order() <= previous->transfer().order())
      report.AddAt(kTransfers, rank, instruction,
                   absl::StrCat("its order ", transfer.order(), " is not above that of ", Describe(*previous),
                                ", ", previous->transfer().order()));
    previous = &instruction;
  }
}

// The same transfer at another place of the groups has the same order as at the first one.
void CheckOrderOfPlaces(const PlanIndex& index, int replica, uint32_t stage, uint32_t micro_batch,
                        TransferPart part, Report& report) {
  const v1::Instruction* first = index.FindTransfer(replica, stage, micro_batch, part, 0).send;
  for (int place = 1; place < index.MeshOf(replica).group_ranks() && first != nullptr; ++place) {
    const TransferEnds other = index.FindTransfer(replica, stage, micro_batch, part, place);
    if (other.send == nullptr || other.send->transfer().order() == first->transfer().order()) continue;
    report.AddAt(kTransfers, other.send_rank, *other.send,
                 absl::StrCat("its order is ", other.send->transfer().order(),
                              ", at the first place of its stage group it is ", first->transfer().order()));
  }
}

// The orders of a replica's transfers are 0, 1, 2, ... without gaps, at the first place of the groups.
void CheckOrderOfReplica(const PlanIndex& index, int replica, Report& report) {
  std::vector<uint32_t> orders;
  for (const int rank : index.RanksOf(replica)) {
    if (index.PlaceOf(rank) != 0) continue;
    for (const v1::Instruction& instruction : index.program(rank).instructions())
      if (instruction.op() == v1::OP_SEND) orders.push_back(instruction.transfer().order());
  }
  std::sort(orders.begin(), orders.end());
  for (size_t i = 0; i < orders.size(); ++i) {
    if (orders[i] == i) continue;
    report.Add(kTransfers, absl::StrCat("replica ", replica, ": no transfer, or more than one, has order ",
                                        std::min<uint64_t>(i, orders[i])));
    return;
  }
}

}  // namespace

void CheckTransfers(const PlanIndex& index, Report& report) {
  for (int replica = 0; replica < index.replicas(); ++replica) {
    for (int stage = 0; stage + 1 < index.StagesOf(replica) && !index.stopped(); ++stage)
      for (int m = 0; m < index.MicroBatches(replica); ++m)
        for (TransferPart part : {kActivation, kGradient}) {
          if (part == kGradient && index.forward_only()) continue;
          for (int place = 0; place < index.MeshOf(replica).group_ranks(); ++place)
            CheckTransfer(index, replica, stage, m, part, place, report);
          CheckOrderOfPlaces(index, replica, stage, m, part, report);
        }
    CheckOrderOfReplica(index, replica, report);
  }
  for (int rank = 0; rank < index.ranks() && !index.stopped(); ++rank) CheckOrderOfRank(index, rank, report);
}

}  // namespace penstock::core::verify
