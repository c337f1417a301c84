// The micro-batches that a profile is measured with. Without LibTorch; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/profile/measured_profile.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Lengths of a sample: all tokens of a decoder-only model are target tokens.
struct ShapeLengths {
  int64_t source = 0;
  int64_t target = 0;
};

// All of whose target tokens are learnt.
MicroBatch PaddedShape(int64_t rows, ShapeLengths lengths);
MicroBatch PackedShape(const std::vector<ShapeLengths>& lengths);

// Squares of target tokens are less what attention of such a window leaves out (0: none), for `windowed` of
// `layers` layers: as planners count them (execution.md, section 1, Square).
struct ShapeWindows {
  int64_t window = 0;
  int64_t windowed = 1;
  int64_t layers = 1;
};
// Of a row of so many target tokens.
double TargetSquare(double length, const ShapeWindows& windows);
TokenFigures FiguresOf(const MicroBatch& shape, const ShapeWindows& windows = {});

// Rectangles of 1, 4 and 16 rows, packed samples of mixed lengths and many packed ones of about one length,
// no neighbours of which are alike, each from 23 tokens up to about the model's max_sequence_length, of at
// most `most_tokens`; by computed tokens, ascending. T5: equal lengths, and source and target of different
// ones.
std::vector<MicroBatch> MeasuredShapes(const ModelConfig& config, int64_t most_tokens);

}  // namespace penstock::worker
