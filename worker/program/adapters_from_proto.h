// Adapters of the contract as plain values. Private to this folder.
#pragma once

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "worker/program/adapter_config.h"

namespace penstock::worker {

// Possible errors: INVALID_ARGUMENT (names the field), UNIMPLEMENTED (a layer that this worker does not
// know).
absl::StatusOr<AdapterConfig> AdaptersFromProto(const v1::Adapters& adapters);

}  // namespace penstock::worker
