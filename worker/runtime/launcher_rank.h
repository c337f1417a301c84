// The rank of a worker that was started without --rank by something that numbers what it starts.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const auto rank, RankOfLauncher(Environment));   // srun: {3, "SLURM_PROCID"}
//
// In this order, which goes from the launcher that starts a process itself to those around it (torchrun and
// mpirun run in Slurm's tasks and in Kubernetes' pods, never the other way round):
//
//   RANK                     torchrun and what is made like it (PyTorchJob of Kubeflow, for instance)
//   OMPI_COMM_WORLD_RANK     mpirun of Open MPI
//   SLURM_PROCID             srun
//   JOB_COMPLETION_INDEX     Kubernetes: an indexed Job, and the Jobs that a JobSet makes. Of a JobSet it
//   counts
//                            within one Job: give all workers to one, `replicas: 1`
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace penstock::worker {

struct LauncherRank {
  uint32_t rank = 0;
  // The variable that said so.
  std::string variable;
};

// The value of a variable of the environment; null where it is not set.
using Environment = std::function<const char*(const char* variable)>;

// Nothing where no variable is set; one that is empty counts as not set. Possible errors: INVALID_ARGUMENT
// (the first one that is set is no number; names it).
absl::StatusOr<std::optional<LauncherRank>> RankOfLauncher(const Environment& environment);

}  // namespace penstock::worker
