// Enumerations of the contract as those of worker/program/program.h. Private to this folder.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "worker/program/job.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Possible errors of all: INVALID_ARGUMENT (unspecified), UNIMPLEMENTED (not known to this worker); both name
// `field` and the value.
absl::StatusOr<DataType> DataTypeFromProto(v1::DataType value, absl::string_view field);
absl::StatusOr<Architecture> ArchitectureFromProto(v1::Architecture value, absl::string_view field);
absl::StatusOr<FeedForward> FeedForwardFromProto(v1::FeedForward value, absl::string_view field);
absl::StatusOr<Position> PositionFromProto(v1::Position value, absl::string_view field);
absl::StatusOr<Norm> NormFromProto(v1::Norm value, absl::string_view field);
absl::StatusOr<Biases> BiasesFromProto(v1::Biases value, absl::string_view field);
absl::StatusOr<RateDecay> RateDecayFromProto(v1::RateDecay value, absl::string_view field);
absl::StatusOr<RotaryScaling> RotaryScalingFromProto(v1::RotaryScaling value, absl::string_view field);
absl::StatusOr<NormPlacement> NormPlacementFromProto(v1::NormPlacement value, absl::string_view field);
absl::StatusOr<Layout> LayoutFromProto(v1::Layout value, absl::string_view field);
absl::StatusOr<Op> OpFromProto(v1::Op value, absl::string_view field);
absl::StatusOr<Stream> StreamFromProto(v1::Stream value, absl::string_view field);
absl::StatusOr<TransferKind> TransferKindFromProto(v1::TransferKind value, absl::string_view field);

}  // namespace penstock::worker
