#include "worker/comm/ring.h"

#include <ATen/ATen.h>

#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// Chunk `index`, taken modulo `size`, of a flat tensor.
at::Tensor Chunk(const at::Tensor& tensor, int index, int size) {
  const int64_t chunk = (index % size + size) % size;
  const int64_t begin = tensor.numel() * chunk / size;
  const int64_t end = tensor.numel() * (chunk + 1) / size;
  return tensor.narrow(0, begin, end - begin);
}

// Sends and receives at once. Chunks may be empty: the neighbour's is then empty too.
absl::Status Exchange(const RingLinks& links, const at::Tensor& sent, const at::Tensor& received) {
  std::unique_ptr<PendingTransfer> receive;
  std::unique_ptr<PendingTransfer> send;
  if (received.numel() > 0) {
    PENSTOCK_ASSIGN_OR_RETURN(receive, links.receive(received));
  }
  if (sent.numel() > 0) {
    PENSTOCK_ASSIGN_OR_RETURN(send, links.send(sent));
  }
  if (receive) PENSTOCK_RETURN_IF_ERROR(receive->Wait());
  if (send) PENSTOCK_RETURN_IF_ERROR(send->Wait());
  return absl::OkStatus();
}

}  // namespace

absl::Status RingAllReduceSum(const at::Tensor& tensor, int position, int size, const RingLinks& links) {
  for (int step = 0; step < size - 1; ++step) {
    const at::Tensor sum = Chunk(tensor, position - step - 1, size);
    PENSTOCK_ASSIGN_OR_RETURN(const at::Tensor addend,
                              CallTorch("all-reduce", [&] { return at::empty_like(sum); }));
    PENSTOCK_RETURN_IF_ERROR(Exchange(links, Chunk(tensor, position - step, size), addend));
    PENSTOCK_RETURN_IF_ERROR(RunTorch("all-reduce", [&] { sum.add_(addend); }));
  }
  for (int step = 0; step < size - 1; ++step) {
    PENSTOCK_RETURN_IF_ERROR(
        Exchange(links, Chunk(tensor, position + 1 - step, size), Chunk(tensor, position - step, size)));
  }
  return absl::OkStatus();
}

}  // namespace penstock::worker
