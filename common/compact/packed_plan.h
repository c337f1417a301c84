// A plan in a twentieth of its memory: its programs' instructions in columns, all else as it is. The same of
// its validation, which is packed apart.
//
//   const PackedPlan packed(std::move(plan));
//   packed.frame().predicted();                     // everything but instructions
//   PENSTOCK_ASSIGN_OR_RETURN(const v1::Program program, packed.Program(3));
//
// Immutable, so that threads may share it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "penstock/v1/plan.pb.h"

namespace penstock {

class PackedPlan {
 public:
  // Takes time: some hundreds of nanoseconds an instruction.
  explicit PackedPlan(v1::Plan plan);

  // The plan without the instructions that columns have, and without its validation.
  const v1::Plan& frame() const { return frame_; }
  // Null: it has none.
  const PackedPlan* validation() const { return validation_.get(); }
  // Of the program, by its place in the plan; empty: the frame has its instructions.
  const std::string& columns(int program) const { return columns_[program]; }

  // Bit for bit what it was made of: all of it; a program; all but the instructions of other programs.
  // Possible errors: INTERNAL (what is kept here has changed: memory is damaged).
  absl::StatusOr<v1::Plan> Plan() const;
  absl::StatusOr<v1::Program> Program(int program) const;
  absl::StatusOr<v1::Plan> PlanFor(int program) const;
  // For who reads columns (GetIterationResponse.instruction_columns): the plan without instructions,
  // validation included, and the columns in their place.
  void CompactTo(v1::Plan* plan, google::protobuf::RepeatedPtrField<std::string>* columns) const;
  // The ops of a program's instructions: by their ids, in little time.
  absl::StatusOr<std::vector<v1::Op>> Ops(int program) const;

  // Of all programs, those of the validation included.
  size_t instructions() const { return instructions_; }

  // Of memory, more or less.
  size_t bytes() const { return bytes_; }

 private:
  void PackValidation();
  absl::Status Unpack(int program, v1::Program* into) const;
  absl::Status Explain(int program, const absl::Status& status) const;

  v1::Plan frame_;
  // By program, and the tokens of its micro-batches, by replica.
  std::vector<std::string> columns_;
  std::vector<std::vector<uint64_t>> tokens_;
  std::unique_ptr<const PackedPlan> validation_;
  size_t instructions_ = 0;
  size_t bytes_ = 0;
};

}  // namespace penstock
