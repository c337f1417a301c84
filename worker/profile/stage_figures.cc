#include "worker/profile/stage_figures.h"

#include "worker/profile/context_shares.h"

namespace penstock::worker {

FiguresOfStage FiguresOfLayer(const ShapeWindows& windows, bool biased) {
  return [=](const MicroBatch& shape, int64_t) {
    TokenFigures figures = FiguresOf(shape, windows);
    figures.source_call_square = 0;
    if (!biased) figures.target_call_square = 0;
    return figures;
  };
}

FiguresOfStage FiguresOfShare(const ShapeWindows& windows, int context) {
  return [=](const MicroBatch& shape, int64_t) {
    TokenFigures figures = ShareFiguresOf(shape, context, windows);
    figures.target_call_square = 0;
    return figures;
  };
}

TokenFigures SourceFigures(const MicroBatch& shape, int64_t) {
  const TokenFigures figures = FiguresOf(shape);
  return {.source = figures.source,
          .source_square = figures.source_square,
          .packed_rows = figures.packed_rows,
          .source_call_square = figures.source_call_square};
}

TokenFigures LossFigures(const MicroBatch&, int64_t loss_tokens) {
  return {.target = static_cast<double>(loss_tokens)};
}

TokenFigures EmbeddedFigures(const MicroBatch& shape, int64_t) {
  const TokenFigures figures = FiguresOf(shape);
  return {.target = figures.source > 0 ? figures.source : figures.target};
}

}  // namespace penstock::worker
