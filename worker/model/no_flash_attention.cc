// Stands in for flash_attention.cc where there is no CUDA: nobody asks for it then.
#include <c10/util/Exception.h>

#include "worker/model/attention_kernel.h"

namespace penstock::worker {

bool FlashAttentionSupports(at::ScalarType, at::Device, int64_t) { return false; }

KernelResult FlashForward(const AttentionOptions&, const RowBegins&, const AttentionOperands&) {
  TORCH_CHECK(false, "flash attention needs a build with PENSTOCK_CUDA");
}

AttentionOperands FlashBackward(const AttentionOptions&, const RowBegins&, const AttentionOperands&,
                                const KernelResult&, const at::Tensor&) {
  TORCH_CHECK(false, "flash attention needs a build with PENSTOCK_CUDA");
}

}  // namespace penstock::worker
