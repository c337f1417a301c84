// Rotary positions (Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021, section
// 3.2): queries and keys are turned by angles in proportion to their position, so that scores depend on
// distances alone. Of the elements that turn, which are the first of a head or all, i and i + width/2 are
// turned together, as published checkpoints of Llama have them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/program/program.h"

namespace penstock::worker {

// Elements of a head that turn; `head_width`: all of them.
int64_t TurningWidth(const RotaryConfig& config, int64_t head_width);

// Angle of one position, radians, for each of the width / 2 pairs that turn, with the scaling of `config`
// (job.proto, RotaryScaling). `long_sample`: of a sample of more than original_max_sequence_length tokens,
// which kLongRope alone tells from others.
std::vector<double> RotaryAngles(const RotaryConfig& config, int64_t width, bool long_sample = false);

// The row of the table for a position of a sample: of kLongRope long samples have rows of their own behind
// those of the others.
int64_t RotaryRow(const RotaryConfig& config, int64_t positions, int64_t sample_tokens, int64_t position);

// [rows, turning width / 2] each, times the attention factor. At least float32: an angle's position has no
// place in bfloat16.
struct RotaryTable {
  at::Tensor cosine;
  at::Tensor sine;
  int64_t head_width = 0;
};

// For positions below `positions`, the model's longest sequence.
RotaryTable MakeRotaryTable(const RotaryConfig& config, int64_t head_width, int64_t positions,
                            at::ScalarType type, at::Device device);

// kBackward: by the opposite angles, which is how gradients go through it.
enum class Turn : uint8_t { kForward, kBackward };

// Turns, in place, heads [tokens, heads * head width] whose rows may be strided. `rows`: the table's row of
// each token (RotaryRow), an index tensor.
void Rotate(const RotaryTable& table, const at::Tensor& rows, Turn turn, const at::Tensor& heads);

}  // namespace penstock::worker
