// `penstock-worker profile`: measures what a model costs on this machine and writes it to a file.
#pragma once

#include "absl/status/status.h"
#include "worker/runtime/worker_options.h"

namespace penstock::worker {

// Blocks for about `seconds`. Possible errors: those of reading the model, measuring and writing the profile;
// files and fields are named.
absl::Status RunProfile(const ProfileOptions& options);

// `penstock-worker profile-check`: measures passes that no profile is fitted to and writes their times
// (common/held_out). Blocks for about `seconds`. Possible errors: as RunProfile.
absl::Status RunProfileCheck(const ProfileOptions& options);

}  // namespace penstock::worker
