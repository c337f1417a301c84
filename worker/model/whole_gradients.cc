#include "worker/model/whole_gradients.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

namespace penstock::worker {
namespace {

// A block that several tensor ranks have: where it is in this rank's gradients, and in what is summed, which
// has a place for the block of each group of holders.
struct SharedBlock {
  int64_t offset = 0;
  int64_t place = 0;
  int64_t elements = 0;
};

struct SharedBlocks {
  std::vector<SharedBlock> blocks;
  int64_t elements = 0;
};

SharedBlocks FindSharedBlocks(const FlatParameters& parameters, const FlatSpan& span, int tensors) {
  SharedBlocks shared;
  for (const NamedParameter& parameter : parameters.parameters) {
    if (parameter.offset < span.begin || parameter.offset >= span.end) continue;
    int64_t offset = parameter.offset;
    for (const OwnBlock& own : parameter.part.blocks) {
      const int64_t elements = own.block.elements();
      if (own.holders > 1) {
        const int64_t place = shared.elements + own.first_holder / own.holders * elements;
        shared.blocks.push_back({offset, place, elements});
        shared.elements += tensors / own.holders * elements;
      }
      offset += elements;
    }
  }
  return shared;
}

}  // namespace

void SumWholeGradients(const FlatParameters& parameters, const FlatSpan& span, StageGroup& group) {
  const int tensors = group.place().tensors;
  if (tensors == 1) return;
  const SharedBlocks shared = FindSharedBlocks(parameters, span, tensors);
  if (shared.elements == 0) return;
  const at::NoGradGuard no_grad;
  at::Tensor sums = at::zeros({shared.elements}, parameters.gradients.options());
  const auto copy = [&](bool back) {
    for (const SharedBlock& block : shared.blocks) {
      const at::Tensor gradient = parameters.gradients.narrow(0, block.offset, block.elements);
      const at::Tensor sum = sums.narrow(0, block.place, block.elements);
      (back ? gradient : sum).copy_(back ? sum : gradient);
    }
  };
  copy(/*back=*/false);
  group.SumOverTensorRanks(sums);
  copy(/*back=*/true);
}

}  // namespace penstock::worker
