// What a rank's share of a micro-batch takes of activation memory, and what of it crosses stages.
//
//   MemoryModel model(profile, job, topology, exchange_model);
//   StageMemory memory = model.OnStage(stage, share);
//
// Where the fullest of many shares is asked for, or many stages are, what depends on the shares alone is made
// once:
//
//   ShareMemory of_shares = model.OfShares(shares);
//   for (...) model.OnStage(stage, shares, of_shares, &memory[stage]);
//
// Bytes are rounded once, by layer.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "planner/core/cost/exchange_model.h"
#include "planner/core/cost/profile.h"
#include "planner/core/cost/repeated_heads.h"
#include "planner/core/cost/stage_memory.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/model/share.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/topology.h"

namespace penstock::core {

class MemoryModel {
 public:
  // All must outlive the model, but the job.
  MemoryModel(const Profile& profile, const Job& job, const Topology& topology,
              const ExchangeModel& exchange_model);

  ShareMemory OfShare(const Share& share) const;
  // Element by element the most that any of the shares takes; there is at least one.
  ShareMemory OfShares(absl::Span<const Share> shares) const;
  // `memory`: empty, or filled by this before.
  void OnStage(int stage, absl::Span<const Share> shares, const ShareMemory& of_shares,
               StageMemory* memory) const;
  StageMemory OnStage(int stage, absl::Span<const Share> shares) const {
    StageMemory memory;
    OnStage(stage, shares, OfShares(shares), &memory);
    return memory;
  }
  StageMemory OnStage(int stage, const Share& share) const { return OnStage(stage, {&share, 1}); }

  // Kept by one layer between its passes: without what a split backward pass puts aside.
  static int64_t KeptBytes(LayerKind kind, RecomputeLevel level, const ShareMemory& memory) {
    const int64_t rows = kind == kDecoder && level == kKeepAll ? memory.rows : 0;
    return std::max<int64_t>(0, memory.layer[kind].stored[level] - rows);
  }
  // Kept by all layers of the stage.
  int64_t StoredBytes(int stage, const StageMemory& memory, const StageRecompute& recompute) const;
  // What comes and goes with a whole backward pass, and with one whose products for weights are put aside:
  // that one has made again what it keeps.
  int64_t BackwardPeak(int stage, const StageMemory& memory, const StageRecompute& recompute) const;
  int64_t InputBackwardPeak(int stage, const StageMemory& memory) const;
  // Kept between BACKWARD_INPUT and BACKWARD_WEIGHT: input and output gradient of every linear layer. Counted
  // as all that a layer keeps without recompute, of which they are nearly everything (GPT: 32 of 34 bytes for
  // each token and element of the width).
  int64_t PutAsideBytes(int stage, const StageMemory& memory) const;

  // Activation that leaves the stage for the next from a tensor rank of the context rank with these tokens.
  int64_t BoundaryElements(int stage, const TokenSums& sums, int tensor) const {
    return BoundaryElements(this->stage(stage).encoder_boundary, sums, tensor);
  }

 private:
  ShareMemory::Layer OfLayer(LayerKind kind, const TokenSums& sums, int64_t rows) const;
  // What LOAD brings of the share's tokens.
  int64_t LoadedBytes(const Stage& stage, const TokenSums& sums) const;
  int64_t GatheredOperandBytes(const Stage& stage, const TokenSums& sums) const;
  // Of the head while it runs, with what it gathers.
  int64_t DividedHeadBytes(const TokenSums& sums) const;
  int64_t BoundaryElements(bool encoder_alone, const TokenSums& sums, int tensor) const;
  const Stage& stage(int index) const { return topology_.shape().stages[index]; }
  const GroupShape& group() const { return topology_.shape().group; }

  const Profile& profile_;
  const Topology& topology_;
  const ExchangeModel& exchange_model_;
  // Of the keys and values of a token.
  double repeated_token_bytes_;
  int64_t hidden_;
  int64_t bytes_per_element_;
  // Kinds that any stage has layers of.
  std::array<bool, kStackKinds> has_kind_ = {};
};

}  // namespace penstock::core
