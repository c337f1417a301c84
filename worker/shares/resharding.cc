#include "worker/shares/resharding.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

const BufferBlock& BlockOf(const BufferBlock& block) { return block; }
const BufferBlock& BlockOf(const StageBlock& of_stage) { return of_stage.block; }

template <typename Blocks>
int64_t ElementsOf(const Blocks& message) {
  int64_t elements = 0;
  for (const auto& block : message) elements += BlockOf(block).elements();
  return elements;
}

// [rows, columns]
at::Tensor ViewOf(const at::Tensor& buffer, const BufferBlock& block) {
  return buffer.as_strided({block.rows, block.columns}, {block.stride, 1},
                           buffer.storage_offset() + block.first);
}

// Calls `visit(in_buffer, in_message)` for each block of a message, both [rows, columns]. `buffer_of` says
// where a block lies.
template <typename Blocks, typename BufferOf, typename Visit>
void ForEachBlock(const Blocks& blocks, const at::Tensor& message, BufferOf buffer_of, Visit visit) {
  int64_t begin = 0;
  for (const auto& placed : blocks) {
    const BufferBlock& block = BlockOf(placed);
    visit(ViewOf(buffer_of(placed), block),
          message.narrow(0, begin, block.elements()).view({block.rows, block.columns}));
    begin += block.elements();
  }
}

void Gather(const at::Tensor& in_buffer, const at::Tensor& in_message) { in_message.copy_(in_buffer); }
void Scatter(const at::Tensor& in_buffer, const at::Tensor& in_message) { in_buffer.copy_(in_message); }
void Add(const at::Tensor& in_buffer, const at::Tensor& in_message) { in_buffer.add_(in_message); }

}  // namespace

Resharding::Messages Resharding::PackShare(const ReshardRound& round) const {
  const at::Tensor& flat = parts_.share->values;
  Messages messages;
  for (const std::vector<BufferBlock>& blocks : round.of_share) {
    messages.push_back(at::empty({ElementsOf(blocks)}, flat.options()));
    ForEachBlock(
        blocks, messages.back(), [&](const BufferBlock&) { return flat; }, Gather);
  }
  Messages by_rank;
  for (const size_t message : routes_->share_message) by_rank.push_back(messages[message]);
  return by_rank;
}

Resharding::Messages Resharding::RoomForStages(const ReshardRound& round) const {
  Messages room(round.of_stages.size());
  for (size_t owner = 0; owner < room.size(); ++owner) {
    if (owner == parts_.rank) continue;
    room[owner] = at::empty({ElementsOf(round.of_stages[owner])}, parts_.share->values.options());
  }
  return room;
}

void Resharding::FillStages(const ReshardRound& round, const Messages& received) const {
  for (size_t owner = 0; owner < received.size(); ++owner) {
    ForEachBlock(
        round.of_stages[owner], received[owner],
        [&](const StageBlock& block) { return parts_.stages.at(block.stage)->flat_parameters().values; },
        Scatter);
  }
}

Resharding::Messages Resharding::PackStages(const ReshardRound& round) const {
  Messages by_rank;
  for (const std::vector<StageBlock>& blocks : round.of_stages) {
    by_rank.push_back(at::empty({ElementsOf(blocks)}, parts_.share->gradients.options()));
    ForEachBlock(
        blocks, by_rank.back(),
        [&](const StageBlock& block) { return parts_.stages.at(block.stage)->flat_parameters().gradients; },
        Gather);
  }
  return by_rank;
}

Resharding::Messages Resharding::RoomForShare(const ReshardRound& round) const {
  Messages room(routes_->share_message.size());
  for (size_t holder = 0; holder < room.size(); ++holder) {
    if (holder == parts_.rank) continue;
    const std::vector<BufferBlock>& blocks = round.of_share[routes_->share_message[holder]];
    room[holder] = at::empty({ElementsOf(blocks)}, parts_.share->gradients.options());
  }
  return room;
}

void Resharding::AddToShare(const ReshardRound& round, const Messages& received) const {
  for (size_t holder = 0; holder < received.size(); ++holder) {
    ForEachBlock(
        round.of_share[routes_->share_message[holder]], received[holder],
        [&](const BufferBlock&) { return parts_.share->gradients; }, Add);
  }
}

absl::StatusOr<Resharding::Travelling> Resharding::Start(const ReshardRound& round, Pack pack,
                                                         Pack make_room) {
  Travelling travelling;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("packing a round", [&] {
    const at::NoGradGuard no_gradients;
    travelling.sent = (this->*pack)(round);
    travelling.received = (this->*make_room)(round);
    travelling.received[parts_.rank] = travelling.sent[parts_.rank];
  }));
  PENSTOCK_ASSIGN_OR_RETURN(travelling.exchange, parts_.communicator->StartAllToAll(
                                                     travelling.sent, travelling.received, parts_.world));
  return travelling;
}

absl::Status Resharding::End(const ReshardRound& round, const Travelling& travelling, Unpack unpack) {
  PENSTOCK_RETURN_IF_ERROR(travelling.exchange->Wait());
  return RunTorch("unpacking a round", [&] {
    const at::NoGradGuard no_gradients;
    (this->*unpack)(round, travelling.received);
  });
}

absl::Status Resharding::BringRounds(size_t count) {
  for (; brought_ < count; ++brought_) {
    PENSTOCK_ASSIGN_OR_RETURN(Travelling next, Start(RoundOfParameters(brought_), &Resharding::PackShare,
                                                     &Resharding::RoomForStages));
    if (brought_ > 0) {
      PENSTOCK_RETURN_IF_ERROR(End(RoundOfParameters(brought_ - 1), bringing_, &Resharding::FillStages));
    }
    bringing_ = std::move(next);
  }
  return absl::OkStatus();
}

absl::Status Resharding::BringParameters() {
  PENSTOCK_RETURN_IF_ERROR(BringRounds(rounds()));
  PENSTOCK_RETURN_IF_ERROR(End(RoundOfParameters(rounds() - 1), bringing_, &Resharding::FillStages));
  bringing_ = {};
  brought_ = 0;
  return absl::OkStatus();
}

absl::Status Resharding::TakeRounds(size_t end) {
  if (taken_ == 0 && end > 0) {
    PENSTOCK_RETURN_IF_ERROR(
        RunTorch("the gradients of the share", [&] { parts_.share->gradients.zero_(); }));
  }
  for (; taken_ < end; ++taken_) {
    PENSTOCK_ASSIGN_OR_RETURN(
        Travelling next, Start(routes_->rounds[taken_], &Resharding::PackStages, &Resharding::RoomForShare));
    if (taken_ > 0)
      PENSTOCK_RETURN_IF_ERROR(End(routes_->rounds[taken_ - 1], travelling_, &Resharding::AddToShare));
    travelling_ = std::move(next);
  }
  return absl::OkStatus();
}

absl::Status Resharding::TakeGradients() {
  PENSTOCK_RETURN_IF_ERROR(TakeRounds(rounds()));
  PENSTOCK_RETURN_IF_ERROR(End(routes_->rounds.back(), travelling_, &Resharding::AddToShare));
  travelling_ = {};
  taken_ = 0;
  return RunTorch("the gradients of the stages", [&] {
    for (const auto& [number, stage] : parts_.stages) stage->ZeroGradients();
  });
}

}  // namespace penstock::worker
