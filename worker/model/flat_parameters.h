// The parameters of a stage and their gradients, each as one flat buffer: a reduction is a few large
// messages, the optimizer one pass over memory, and any interval of them can be somebody's share.
//
//   FlatParameters flat = MakeFlatParameters(StageParameterSpecs(config, range), seed, at::kFloat, at::kCPU);
//   flat.parameters[0].value                        // [out, in], a view of flat.values
//   flat.values.narrow(0, flat.spans[0].begin, n)   // what many of them are, end to end
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/model/parameters.h"

namespace penstock::worker {

// Which ranks have the same parameters as this one, and sum their gradients.
enum class Holders : uint8_t {
  // Those of its tensor rank, in every context rank and replica.
  kOfTensorRank,
  // Those that have its experts, where ranks divide them: some of these.
  kOfExperts,
};

// In their buffer parameters begin at multiples of it: as LibTorch aligns tensors of their own, which its
// kernels are fastest with.
inline constexpr int64_t kParameterAlignmentBytes = 64;

struct NamedParameter {
  // Independent of the pipeline split, such as "layers.3.attention.qkv.weight" (worker/model/parameters.h).
  std::string name;
  // Of the model's type.
  at::Tensor value;
  // Same shape; float32 for bfloat16, otherwise of the model's type. The same tensor for the stage's whole
  // life. Undefined where the parameter is frozen.
  at::Tensor gradient;
  // Other stages of the pipeline may hold it too, with the same value in every bit; what counts is the sum of
  // their gradients. `copy`: this is not the first of them.
  bool shared = false;
  bool copy = false;
  // Of its first element in the flat buffers.
  int64_t offset = 0;
  // What `value` is of the whole parameter; has blocks.
  ParameterPart part = {};
  Holders holders = Holders::kOfTensorRank;
};

// Elements [begin, end) of a flat buffer.
struct FlatSpan {
  int64_t begin = 0;
  int64_t end = 0;
  Holders holders = Holders::kOfTensorRank;

  int64_t size() const { return end - begin; }
};

struct FlatParameters {
  // One dimension, of one length. Parameters begin at multiples of 64 bytes; what lies between them is 0 in
  // both, and stays so.
  at::Tensor values;
  at::Tensor gradients;
  // In the order of their specifications, as views.
  std::vector<NamedParameter> parameters;
  // What is reduced, and divided between replicas, one by one, ascending: what this stage alone holds in
  // buckets, so that a backward pass can let the upper ones go while it makes the lower ones; then each
  // shared parameter by itself, so that every stage divides it at the same places. All of a span has the same
  // holders: a layer's experts are buckets of their own where ranks divide them.
  std::vector<FlatSpan> spans;
  // How many of them are buckets. The first is there, if empty, where all is shared.
  size_t buckets = 0;
  // What does not learn, in a flat buffer of its own: nobody reduces, updates or saves it.
  at::Tensor frozen_values = {};
  std::vector<NamedParameter> frozen = {};
};

// Where nobody asks for another size: a message of it takes far longer than starting it.
inline constexpr int64_t kBucketBytes = int64_t{4} << 20;

// Initial values of the parameters (without a seed 0: somebody else fills them), gradients of 0. A bucket
// begins with a layer, and the one below it has at least `bucket_bytes` of gradients. Parameters and buckets
// begin at the same places on all tensor ranks.
FlatParameters MakeFlatParameters(const std::vector<ParameterSpec>& specs, std::optional<uint64_t> seed,
                                  at::ScalarType type, at::Device device,
                                  int64_t bucket_bytes = kBucketBytes);

// Adds what does not learn, with values as above.
void AddFrozenParameters(const std::vector<ParameterSpec>& specs, std::optional<uint64_t> seed,
                         at::ScalarType type, at::Device device, FlatParameters* flat);

}  // namespace penstock::worker
