#include "common/compact/instruction_predictions.h"

#include <algorithm>

namespace penstock {
namespace {

uint64_t ElementBytes(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FLOAT64:
      return 8;
    case v1::DATA_TYPE_FLOAT32:
      return 4;
    default:
      return 2;
  }
}

}  // namespace

void InstructionPredictions::Begin(uint32_t kind) {
  ++current_;
  kind_ = kind;
  kinds_.push_back(kind);
  const auto found = last_of_kind_.find(kind);
  before_ = found == last_of_kind_.end() ? -1 : found->second;
}

uint32_t InstructionPredictions::MicroBatch() const {
  return before_ < 0 ? 0 : instructions_->at(before_).micro_batch() + 1;
}

uint32_t InstructionPredictions::Dep(int place) const {
  const auto position = static_cast<uint32_t>(current_);
  if (before_ < 0) return position - 1;
  const v1::Instruction& before = instructions_->at(before_);
  const uint32_t dep = before.deps(place);
  if (dep >= static_cast<uint32_t>(before_)) return position - 1;
  const uint32_t micro_batch =
      instructions_->at(static_cast<int>(dep)).micro_batch() + current().micro_batch() - before.micro_batch();
  const auto found = last_of_micro_batch_.find({kinds_[dep], micro_batch});
  if (found != last_of_micro_batch_.end()) return static_cast<uint32_t>(found->second);
  return position - (static_cast<uint32_t>(before_) - dep);
}

int64_t InstructionPredictions::ScaledFrom(int64_t value) const {
  const uint64_t from = TokensOf(instructions_->at(before_).micro_batch());
  const uint64_t to = TokensOf(current().micro_batch());
  if (from == 0 || to == 0 || value < 0) return value;
  // Most micro-batches are alike, and a division of 128 bits takes longer than all the rest.
  if (from == to) return value;
  using Wide = unsigned __int128;
  return static_cast<int64_t>(
      static_cast<uint64_t>(static_cast<Wide>(static_cast<uint64_t>(value)) * to / from));
}

int64_t InstructionPredictions::Start() const {
  int64_t start = 0;
  const auto stream = end_of_stream_.find(current().stream());
  if (stream != end_of_stream_.end()) start = std::max(start, stream->second);
  for (const uint32_t dep : current().deps()) {
    if (dep < static_cast<uint32_t>(current_))
      start = std::max(start, EndOf(instructions_->at(static_cast<int>(dep))));
  }
  return start;
}

int64_t InstructionPredictions::Duration() const {
  const auto found = duration_.find({kind_, TokensOf(current().micro_batch())});
  if (found != duration_.end()) return found->second;
  return Scaled([](const v1::Instruction& instruction) { return instruction.expected_duration_ns(); });
}

uint32_t InstructionPredictions::Shape() const {
  const auto found = shape_.find(current().micro_batch());
  return found != shape_.end() ? found->second : static_cast<uint32_t>(TokensOf(current().micro_batch()));
}

uint64_t InstructionPredictions::TransferBytes() const {
  uint64_t bytes = ElementBytes(current().transfer().dtype());
  for (const uint32_t size : current().transfer().shape()) bytes *= size;
  return bytes;
}

uint32_t InstructionPredictions::TransferSequence() const {
  const auto found = transfer_sequence_.find({current().op(), current().transfer().peer()});
  return found == transfer_sequence_.end() ? 0 : found->second + 1;
}

uint32_t InstructionPredictions::TransferOrder() const { return next_order_; }

uint32_t InstructionPredictions::TransferId() const {
  return current().deps().empty() ? 0 : *current().deps().rbegin();
}

uint32_t InstructionPredictions::CollectiveSequence() const {
  const auto found = collective_sequence_.find(current().collective().group());
  return found == collective_sequence_.end() ? 0 : found->second + 1;
}

void InstructionPredictions::End() {
  const v1::Instruction& now = current();
  last_of_kind_[kind_] = current_;
  last_of_micro_batch_[{kind_, now.micro_batch()}] = current_;
  duration_[{kind_, TokensOf(now.micro_batch())}] = now.expected_duration_ns();
  end_of_stream_[now.stream()] = EndOf(now);
  if (now.has_transfer()) {
    const v1::Transfer& transfer = now.transfer();
    if (!transfer.shape().empty()) shape_[now.micro_batch()] = transfer.shape(0);
    transfer_sequence_[{now.op(), transfer.peer()}] = transfer.sequence();
    next_order_ = transfer.order() + 1;
  }
  if (now.has_collective()) collective_sequence_[now.collective().group()] = now.collective().sequence();
}

}  // namespace penstock
