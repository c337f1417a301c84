#include "worker/model/joint_head_norms.h"

#include <ATen/ATen.h>

#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Two columns, [tokens, 1] each, summed over the tensor ranks in one exchange. Heads that several ranks have
// come in as often: each rank's sum is divided by `holders`.
at::Tensor SummedColumns(const JointHeadNormsPart& part, const at::Tensor& query, const at::Tensor& key) {
  at::Tensor sums = at::cat({query / part.query.holders, key / part.key.holders}, 1);
  part.group->SumOverTensorRanks(sums);
  return sums;
}

at::Tensor SquaresOf(const at::Tensor& columns) {
  const at::ScalarType wide = AccumulationType(columns.scalar_type());
  return at::linalg_vector_norm(columns, 2, at::IntArrayRef(-1), /*keepdim=*/true, wide).square_();
}

at::Tensor ScaleOf(const JointNorm& joint, const at::Tensor& squares) {
  return (squares / static_cast<double>(joint.elements)).add_(joint.norm.epsilon).rsqrt_();
}

void Multiply(const JointNorm& joint, const at::Tensor& scale, const at::Tensor& columns) {
  columns.copy_(at::mul(columns, scale).to(columns.scalar_type()).mul_(NormFactors(joint.norm)));
}

// What stands between the two passes of one of the norms.
struct GradientParts {
  at::Tensor normalised;
  // Of what is normalised, before its own norm counts.
  at::Tensor gradient;
  // Of each token, over the elements here.
  at::Tensor along;
};

GradientParts PartsOf(const JointNorm& joint, const at::Tensor& kept, const at::Tensor& scale,
                      const at::Tensor& columns) {
  const at::ScalarType wide = AccumulationType(columns.scalar_type());
  GradientParts parts = {.normalised = at::mul(kept, scale), .gradient = {}, .along = {}};
  if (joint.norm.weight.learns()) {
    joint.norm.weight.gradient.add_(
        at::mul(columns, parts.normalised).sum(at::IntArrayRef(0), /*keepdim=*/false, wide));
  }
  parts.gradient = at::mul(columns.to(wide), NormFactors(joint.norm));
  parts.along = at::mul(parts.gradient, parts.normalised).sum(-1, /*keepdim=*/true);
  return parts;
}

// `along`: over all heads. Ranks that have the same heads have a part of their gradients each, whose sum
// counts: each takes its share of what the norm itself gives.
void WriteGradient(const JointNorm& joint, const GradientParts& parts, const at::Tensor& scale,
                   const at::Tensor& along, const at::Tensor& columns) {
  const double shares = static_cast<double>(joint.elements) * static_cast<double>(joint.holders);
  columns.copy_((parts.gradient - parts.normalised * (along / shares)).mul_(scale));
}

}  // namespace

void NormaliseJointly(const JointHeadNormsPart& part, const at::Tensor& queries, const at::Tensor& keys,
                      JointHeadNormsMemory& memory) {
  memory.query = queries.clone(at::MemoryFormat::Contiguous);
  memory.key = keys.clone(at::MemoryFormat::Contiguous);
  const at::Tensor squares = SummedColumns(part, SquaresOf(memory.query), SquaresOf(memory.key));
  memory.query_scale = ScaleOf(part.query, squares.narrow(1, 0, 1));
  memory.key_scale = ScaleOf(part.key, squares.narrow(1, 1, 1));
  Multiply(part.query, memory.query_scale, queries);
  Multiply(part.key, memory.key_scale, keys);
}

void JointHeadNormsBackward(const JointHeadNormsPart& part, const JointHeadNormsMemory& memory,
                            const at::Tensor& queries, const at::Tensor& keys) {
  const GradientParts query = PartsOf(part.query, memory.query, memory.query_scale, queries);
  const GradientParts key = PartsOf(part.key, memory.key, memory.key_scale, keys);
  // The sum over ranks that have the same heads is that of their partial gradients: nothing is divided.
  at::Tensor along = at::cat({query.along, key.along}, 1);
  part.group->SumOverTensorRanks(along);
  WriteGradient(part.query, query, memory.query_scale, along.narrow(1, 0, 1), queries);
  WriteGradient(part.key, key, memory.key_scale, along.narrow(1, 1, 1), keys);
}

}  // namespace penstock::worker
