// Rotary positions (Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021, section
// 3.2): queries and keys are turned by angles in proportion to their position, so that scores depend on
// distances alone. Elements i and i + width/2 of a head are turned together, as published checkpoints of
// Llama have them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/program/program.h"

namespace penstock::worker {

// Angle of one position, radians, for each of the width / 2 pairs of a head, with the scaling of `config`
// (job.proto, RotaryScaling).
std::vector<double> RotaryAngles(const RotaryConfig& config, int64_t width);

// [positions, width / 2] each. At least float32: an angle's position has no place in bfloat16.
struct RotaryTable {
  at::Tensor cosine;
  at::Tensor sine;
};

RotaryTable MakeRotaryTable(const RotaryConfig& config, int64_t width, int64_t positions, at::ScalarType type,
                            at::Device device);

// kBackward: by the opposite angles, which is how gradients go through it.
enum class Turn : uint8_t { kForward, kBackward };

// Turns, in place, heads [tokens, heads * width] whose rows may be strided. `positions`: of the tokens, an
// index tensor, below those of the table.
void Rotate(const RotaryTable& table, const at::Tensor& positions, Turn turn, const at::Tensor& heads);

}  // namespace penstock::worker
