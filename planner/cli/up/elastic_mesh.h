// The mesh, or the meshes side by side, that a run goes on with when it has fewer ranks, or more.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

// Of the meshes with the degrees of `job` or half, a quarter, ... of them (tensor ranks stay: what costs were
// measured at), and with as many replicas as `ranks` allow, the one whose plan for `batch` is the fastest. It
// has at least `least` ranks. `job` has its cost profile. Plans each of them, with effort fast. Possible
// errors: RESOURCE_EXHAUSTED (no mesh of so many ranks can be planned: says why the largest of them cannot).
absl::StatusOr<v1::Mesh> FastestMesh(const v1::JobSpec& job, const v1::Batch& batch, uint32_t ranks,
                                     uint32_t least);

// The same, or meshes side by side on all of `ranks` where these are faster by a per cent: pp 4 + pp 3 on 7
// ranks, with no degree above those of `job`. Parameters are in shares then. Possible errors: the same, where
// nothing side by side can be planned either.
absl::StatusOr<v1::Strategy> FastestStrategy(const v1::JobSpec& job, const v1::Batch& batch, uint32_t ranks,
                                             uint32_t least);

}  // namespace penstock::cli
