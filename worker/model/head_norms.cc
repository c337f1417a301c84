#include "worker/model/head_norms.h"

#include <ATen/ATen.h>

namespace penstock::worker {
namespace {

// A copy, [tokens x heads, width].
at::Tensor HeadsOf(const NormPart& part, const at::Tensor& columns) {
  return columns.clone(at::MemoryFormat::Contiguous).view({-1, part.weight.value.size(0)});
}

void Normalise(const NormPart& part, const at::Tensor& columns, at::Tensor& kept,
               NormStatistics& statistics) {
  kept = HeadsOf(part, columns);
  columns.copy_(NormForward(part, kept, statistics).view(columns.sizes()));
}

void Backward(const NormPart& part, const at::Tensor& kept, const NormStatistics& statistics,
              const at::Tensor& columns) {
  columns.copy_(NormBackward(part, kept, statistics, HeadsOf(part, columns)).view(columns.sizes()));
}

}  // namespace

void NormaliseHeads(const HeadNormsPart& part, const at::Tensor& queries, const at::Tensor& keys,
                    HeadNormsMemory& memory) {
  Normalise(part.query, queries, memory.query, memory.query_statistics);
  Normalise(part.key, keys, memory.key, memory.key_statistics);
}

void HeadNormsBackward(const HeadNormsPart& part, HeadNormsMemory memory, const at::Tensor& queries,
                       const at::Tensor& keys) {
  Backward(part.query, memory.query, memory.query_statistics, queries);
  Backward(part.key, memory.key, memory.key_statistics, keys);
}

}  // namespace penstock::worker
