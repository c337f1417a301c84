// By which figures of a micro-batch the time of each part of a model goes.
#pragma once

#include <cstdint>

#include "worker/profile/measured_profile.h"
#include "worker/profile/measured_shapes.h"
#include "worker/profile/shape_visits.h"
#include "worker/program/program.h"

namespace penstock::worker {

// `biased`: the scores of its own tokens have a bias, which calls make for all of their rows. Those of a
// source that a decoder attends to never have one.
FiguresOfStage FiguresOfLayer(const ShapeWindows& windows, bool biased);

// The same of what a context rank has of shapes with spans. Decoder-only models, whose scores have no bias.
FiguresOfStage FiguresOfShare(const ShapeWindows& windows, int context);

// A T5's encoder layer.
TokenFigures SourceFigures(const MicroBatch& shape, int64_t loss_tokens);

// Head and embedding do not care how tokens are divided into rows. Their times include the LOADs of the
// stages that have them, which grow with the same tokens.
TokenFigures LossFigures(const MicroBatch& shape, int64_t loss_tokens);
TokenFigures EmbeddedFigures(const MicroBatch& shape, int64_t loss_tokens);

}  // namespace penstock::worker
