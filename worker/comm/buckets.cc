#include "worker/comm/buckets.h"

#include <ATen/ATen.h>

#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

int64_t Bytes(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// The end of the bucket that begins at `begin`.
size_t BucketEnd(const std::vector<at::Tensor>& tensors, size_t begin, int64_t bucket_bytes) {
  int64_t bytes = Bytes(tensors[begin]);
  size_t end = begin + 1;
  while (end < tensors.size() && tensors[end].scalar_type() == tensors[begin].scalar_type() &&
         bytes + Bytes(tensors[end]) <= bucket_bytes) {
    bytes += Bytes(tensors[end]);
    ++end;
  }
  return end;
}

at::Tensor Flatten(const std::vector<at::Tensor>& bucket) {
  if (bucket.size() == 1) return bucket[0].reshape({-1});
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : bucket) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

void CopyBack(const at::Tensor& flat, const std::vector<at::Tensor>& bucket) {
  if (bucket.size() == 1 && flat.is_alias_of(bucket[0])) return;
  int64_t offset = 0;
  for (const at::Tensor& tensor : bucket) {
    tensor.copy_(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

}  // namespace

absl::Status ReduceInBuckets(std::vector<at::Tensor>& tensors, int64_t bucket_bytes,
                             const std::function<absl::Status(at::Tensor flat)>& reduce) {
  size_t end = 0;
  for (size_t begin = 0; begin < tensors.size(); begin = end) {
    end = BucketEnd(tensors, begin, bucket_bytes);
    const auto first = tensors.begin() + static_cast<ptrdiff_t>(begin);
    const std::vector<at::Tensor> bucket(first, first + static_cast<ptrdiff_t>(end - begin));
    PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor flat,
                              CallTorch("all-reduce", [&] { return Flatten(bucket); }));
    PENSTOCK_RETURN_IF_ERROR(reduce(flat));
    PENSTOCK_RETURN_IF_ERROR(RunTorch("all-reduce", [&] { CopyBack(flat, bucket); }));
  }
  return absl::OkStatus();
}

}  // namespace penstock::worker
