// The one place where the worker converts the contract: jobs and programs become plain structs.
//
// What comes over the wire is judged here, so that the executor may index without looking: every id, stage,
// micro-batch, sample, transfer and group of a converted program exists.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/planner_service.pb.h"
#include "worker/program/job.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Possible errors: INVALID_ARGUMENT (a field is missing or out of range), UNIMPLEMENTED (a value that this
// worker does not know). The message names the field.
absl::StatusOr<ModelConfig> ModelFromProto(const v1::ModelSpec& model);

// Without its topology and those of its strategies, which the planner gives beside it.
// Possible errors: INVALID_ARGUMENT (a field is missing or out of range), UNIMPLEMENTED (an architecture that
// this worker does not have). The message names the field.
absl::StatusOr<JobConfig> JobFromProto(const v1::JobSpec& job);

// The topology that the planner gave, for the ranks, replicas and layers of `job`.
// Possible errors: INVALID_ARGUMENT (another number of replicas, ranks or layers; a rank that is in two
// replicas or stage groups; a stage group of another size). The message names the field.
absl::StatusOr<Topology> TopologyFromProto(const v1::Topology& topology, const JobConfig& job);

// The same for meshes side by side.
absl::StatusOr<Topology> TopologyFromProto(const v1::Topology& topology,
                                           const std::vector<MeshConfig>& meshes);

// The same of each of its strategies, which come with it; `job.topology` is known. Possible errors:
// INVALID_ARGUMENT (another number of them; those of TopologyFromProto; the first is not the job's).
absl::Status AddStrategyTopologies(const v1::RegisterWorkerResponse& response, JobConfig& job);

// A strategy that the job got after it was registered, with this number; nothing where it has it already.
// Possible errors: INVALID_ARGUMENT (a job without strategies; those of a strategy of JobFromProto, and of
// TopologyFromProto), ABORTED (it has another one of this number: the planner's store was restored from a
// backup, and its job took another way).
absl::Status AddStrategy(uint32_t number, const v1::Strategy& strategy, const v1::Topology& topology,
                         JobConfig& job);

// `job` is the job that the program belongs to.
// Possible errors: INVALID_ARGUMENT (an inconsistent program), UNIMPLEMENTED (an op, a layout or a kind of
// recompute that this worker does not know). The message names iteration, instruction or micro-batch, and
// field.
absl::StatusOr<Program> ProgramFromProto(const v1::StreamProgramsResponse& message, const JobConfig& job);

}  // namespace penstock::worker
