// Stands in for nccl_communicator.cc where there is no CUDA.
#include "worker/comm/communicator.h"

namespace penstock::worker {

absl::StatusOr<std::unique_ptr<Communicator>> MakeNcclCommunicator(const CommunicatorOptions&) {
  return absl::UnimplementedError("NCCL needs a build with PENSTOCK_CUDA: use the cuda preset");
}

}  // namespace penstock::worker
