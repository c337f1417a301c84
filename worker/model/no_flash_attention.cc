// Stands in for flash_attention.cc where there is no CUDA: MakeAttentionShape then never asks for it.
#include <c10/util/Exception.h>

#include "worker/model/attention_kernel.h"

namespace penstock::worker {

bool FlashAttentionSupports(at::ScalarType, at::Device) { return false; }

at::Tensor FlashAttention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                          int64_t) {
  TORCH_CHECK(false, "flash attention needs a build with PENSTOCK_CUDA");
}

KernelResult FlashForward(const AttentionOptions&, const AttentionOperands&, const at::Tensor&, int64_t) {
  TORCH_CHECK(false, "flash attention needs a build with PENSTOCK_CUDA");
}

AttentionOperands FlashBackward(const AttentionOptions&, const AttentionOperands&, const at::Tensor&, int64_t,
                                const KernelResult&, const at::Tensor&) {
  TORCH_CHECK(false, "flash attention needs a build with PENSTOCK_CUDA");
}

}  // namespace penstock::worker
