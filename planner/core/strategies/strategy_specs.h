// A job with strategies, as a job for each mesh of each of them.
//
//   PENSTOCK_RETURN_IF_ERROR(CheckStrategies(job));
//   for (int i = 0; i < StrategyCount(job); ++i)
//     for (int mesh = 0; mesh < MeshCount(job, i); ++mesh) Use(SpecOfMesh(job, i, mesh));
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"
#include "planner/core/topology/world.h"

namespace penstock::core {

// 1 where the job has none: its mesh alone.
int StrategyCount(const v1::JobSpec& job);
// Side by side.
int MeshCount(const v1::JobSpec& job, int strategy);
// How many ranks the strategy has before those of the mesh.
int FirstRankOf(const v1::JobSpec& job, int strategy, int mesh);

// That they are strategies of one job: what each of their meshes may be alone, JobFromProto says. Possible
// errors: INVALID_ARGUMENT (names the field).
absl::Status CheckStrategies(const v1::JobSpec& job);

// Of a mesh of several side by side, what is known of the others without their stages; of one alone nothing.
World WorldOf(const v1::JobSpec& job, int strategy, int mesh);

// The job as it would be with this mesh alone, its ranks numbered from 0, of a strategy that has passed
// CheckStrategies. Of several meshes each is for its part of the typical batch.
v1::JobSpec SpecOfMesh(const v1::JobSpec& job, int strategy, int mesh);

}  // namespace penstock::core
