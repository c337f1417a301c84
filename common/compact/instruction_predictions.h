// What the next instruction of a program is expected to be, from those before it: the predictions of
// InstructionColumns (compact.proto). Whoever writes columns and whoever reads them asks the same one.
//
//   InstructionPredictions predictions(tokens, &instructions);
//   for each instruction: Begin(kind); every field in the order of the columns, set in the message before
//   what follows is asked for; End().
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "penstock/v1/plan.pb.h"

namespace penstock {

using Instructions = google::protobuf::RepeatedPtrField<v1::Instruction>;

// Not thread-safe.
class InstructionPredictions {
 public:
  // `tokens`: computed ones, by micro-batch. `instructions`: those before, and the one that is looked at.
  // Both must outlive this.
  InstructionPredictions(absl::Span<const uint64_t> tokens, const Instructions* instructions)
      : tokens_(tokens), instructions_(instructions) {}

  // The next instruction has this kind.
  void Begin(uint32_t kind);

  uint32_t MicroBatch() const;
  uint32_t Dep(int place) const;
  // `get` gives the field of an instruction.
  template <typename Get>
  int64_t Scaled(const Get& get) const {
    return before_ < 0 ? 0 : ScaledFrom(static_cast<int64_t>(get(instructions_->at(before_))));
  }
  int64_t Start() const;
  int64_t Duration() const;
  uint32_t Shape() const;
  uint64_t TransferBytes() const;
  uint32_t TransferSequence() const;
  uint32_t TransferOrder() const;
  uint32_t TransferId() const;
  uint32_t CollectiveSequence() const;

  // All its fields are known.
  void End();

 private:
  const v1::Instruction& current() const { return instructions_->at(current_); }
  uint64_t TokensOf(uint32_t micro_batch) const {
    return micro_batch < tokens_.size() ? tokens_[micro_batch] : 0;
  }
  int64_t ScaledFrom(int64_t value) const;
  static int64_t EndOf(const v1::Instruction& instruction) {
    return static_cast<int64_t>(static_cast<uint64_t>(instruction.expected_start_ns()) +
                                static_cast<uint64_t>(instruction.expected_duration_ns()));
  }

  const absl::Span<const uint64_t> tokens_;
  const Instructions* const instructions_;
  // The one that is looked at, its kind, and the last earlier one of this kind, or -1.
  int current_ = -1;
  uint32_t kind_ = 0;
  int before_ = -1;
  std::vector<uint32_t> kinds_;
  // By kind: the last instruction.
  absl::flat_hash_map<uint32_t, int> last_of_kind_;
  // By kind and micro-batch: the last instruction; by kind and tokens: what the last one took.
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, int> last_of_micro_batch_;
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, int64_t> duration_;
  // By micro-batch; by op and peer; by group.
  absl::flat_hash_map<uint32_t, uint32_t> shape_;
  absl::flat_hash_map<std::pair<int, uint32_t>, uint32_t> transfer_sequence_;
  absl::flat_hash_map<uint32_t, uint32_t> collective_sequence_;
  std::map<int, int64_t> end_of_stream_;
  // 0 before the first transfer.
  uint32_t next_order_ = 0;
};

}  // namespace penstock
