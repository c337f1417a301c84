// Measured times of passes that no cost profile was fitted to: what `penstock-worker profile-check` writes
// and `penstock profile check` compares a profile with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// What was run: one layer (of a T5, of either stack; of a model with experts, with them or without), or the
// head.
enum class HeldOutPart : uint8_t { kEncoderLayer, kLayer, kDenseLayer, kHead };
// kBackwardInput and kBackwardWeight are the parts of a split backward pass. kBoth: forward and backward pass
// of the head, which makes its gradients before its forward pass ends, so that what is left is next to
// nothing.
enum class HeldOutKind : uint8_t { kForward, kBackward, kBackwardInput, kBackwardWeight, kBoth };
enum class HeldOutRecompute : uint8_t { kNone, kSelective, kFull };

struct HeldOutSample {
  // Tokens; all of a decoder-only model are target tokens.
  uint32_t source = 0;
  uint32_t target = 0;
  // Context ranks that its row is divided over.
  uint32_t span = 1;
};

struct HeldOutPass {
  HeldOutPart part = HeldOutPart::kLayer;
  HeldOutKind kind = HeldOutKind::kForward;
  HeldOutRecompute recompute = HeldOutRecompute::kNone;
  // Samples in one row without padding; else one row each, of equal lengths.
  bool packed = false;
  std::vector<HeldOutSample> samples;
  // Of a rank's share: which it is of so many context ranks. It has a part of each sample, or all of it.
  uint32_t context = 0;
  uint32_t contexts = 1;
  // Positions that the loss counts.
  double loss_tokens = 0;
  // Median of its repeats.
  double duration_ns = 0;
};

struct HeldOutTimes {
  std::vector<HeldOutPass> passes;
  // What kept the measuring thread from its core, although it was measured again; empty: nothing.
  std::string disturbance;
};

// "layer", "forward", "selective": as the JSON has them.
const char* NameOf(HeldOutPart part);
const char* NameOf(HeldOutKind kind);
const char* NameOf(HeldOutRecompute recompute);

std::string ToJson(const HeldOutTimes& times);
// Possible errors: INVALID_ARGUMENT (not what ToJson writes: says which pass).
absl::StatusOr<HeldOutTimes> HeldOutTimesFromJson(absl::string_view json);

}  // namespace penstock
