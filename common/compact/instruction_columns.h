// The instructions of a program in columns, and back (penstock/v1/compact.proto).
//
//   const std::vector<uint64_t> tokens = TokensOf(plan.replicas(0).micro_batches());
//   if (std::optional<std::string> columns = PackInstructions(program.instructions(), tokens)) ...
//   PENSTOCK_RETURN_IF_ERROR(UnpackInstructions(*columns, tokens, MostInstructions(program, tokens),
//   &again));
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/compact/instruction_predictions.h"
#include "penstock/v1/plan.pb.h"

namespace penstock {

// The version of compact.proto that this writes and reads.
inline constexpr uint32_t kCompactVersion = 1;

// Of the message before it is compressed: no longer one is written or read. 16 bytes an instruction.
inline constexpr size_t kMostColumnBytes = size_t{256} << 20;

// Computed tokens by micro-batch.
std::vector<uint64_t> TokensOf(const google::protobuf::RepeatedPtrField<v1::MicroBatch>& micro_batches);

// As many instructions as a program with these stages may have, and still make sense: compact.proto.
size_t MostInstructions(const v1::Program& program, absl::Span<const uint64_t> tokens);

// Nothing where columns do not have them all: ids that are not positions, a shape of more than 8 numbers, or
// more than kMostColumnBytes. `tokens`: of the replica's micro-batches.
std::optional<std::string> PackInstructions(const Instructions& instructions,
                                            absl::Span<const uint64_t> tokens);

// Appends what PackInstructions was given. `columns` may be anything; takes memory for `most` instructions at
// most. Possible errors: INVALID_ARGUMENT (names the column), RESOURCE_EXHAUSTED (more than `most`).
absl::Status UnpackInstructions(absl::string_view columns, absl::Span<const uint64_t> tokens, size_t most,
                                Instructions* instructions);

// The ops of the instructions alone, in a hundredth of the time. Possible errors: as UnpackInstructions.
absl::StatusOr<std::vector<v1::Op>> UnpackOps(absl::string_view columns, size_t most);

}  // namespace penstock
