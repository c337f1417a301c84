#include "worker/model/rotary.h"

#include <ATen/ATen.h>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// [positions, pairs]
at::Tensor AnglesOf(const RotaryConfig& config, int64_t width, int64_t positions, bool long_sample) {
  return at::outer(at::arange(positions, at::kDouble),
                   at::tensor(RotaryAngles(config, width, long_sample), at::kDouble));
}

}  // namespace

RotaryTable MakeRotaryTable(const RotaryConfig& config, int64_t head_width, int64_t positions,
                            at::ScalarType type, at::Device device) {
  const at::TensorOptions options = at::TensorOptions(AccumulationType(type)).device(device);
  const int64_t width = TurningWidth(config, head_width);
  at::Tensor angles = AnglesOf(config, width, positions, /*long_sample=*/false);
  if (config.scaling == RotaryScaling::kLongRope)
    angles = at::cat({angles, AnglesOf(config, width, positions, /*long_sample=*/true)});
  return {angles.cos().mul_(config.attention_factor).to(options),
          angles.sin().mul_(config.attention_factor).to(options), head_width};
}

void Rotate(const RotaryTable& table, const at::Tensor& rows, Turn turn, const at::Tensor& heads) {
  const int64_t half = table.cosine.size(1);
  const at::Tensor all = heads.view({heads.size(0), heads.size(1) / table.head_width, table.head_width});
  const at::Tensor first = all.narrow(2, 0, half);
  const at::Tensor second = all.narrow(2, half, half);
  const at::Tensor cosine = table.cosine.index_select(0, rows).unsqueeze(1);
  at::Tensor sine = table.sine.index_select(0, rows).unsqueeze(1);
  if (turn == Turn::kBackward) sine = sine.neg_();
  // In the type of the table, and rounded once.
  const at::Tensor turned = at::mul(first, cosine).sub_(at::mul(second, sine));
  second.copy_(at::mul(second, cosine).add_(at::mul(first, sine)));
  first.copy_(turned);
}

}  // namespace penstock::worker
