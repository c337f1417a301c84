#include "common/compact/packed_plan.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/compact/instruction_columns.h"
#include "common/status/status_macros.h"

namespace penstock {

PackedPlan::PackedPlan(v1::Plan plan) : frame_(std::move(plan)), columns_(frame_.programs_size()) {
  for (const v1::Replica& replica : frame_.replicas()) tokens_.push_back(TokensOf(replica.micro_batches()));
  for (int program = 0; program < frame_.programs_size(); ++program) {
    v1::Program* const kept = frame_.mutable_programs(program);
    instructions_ += static_cast<size_t>(kept->instructions_size());
    if (kept->instructions().empty() || kept->replica() >= tokens_.size()) continue;
    const std::vector<uint64_t>& tokens = tokens_[kept->replica()];
    // What a reader would refuse stays as it is.
    if (static_cast<size_t>(kept->instructions_size()) > MostInstructions(*kept, tokens)) continue;
    std::optional<std::string> columns = PackInstructions(kept->instructions(), tokens);
    if (!columns.has_value()) continue;
    columns_[program] = *std::move(columns);
    // Not Clear(), which keeps the memory for the next ones.
    Instructions().Swap(kept->mutable_instructions());
  }
  PackValidation();
  bytes_ += sizeof(*this) + frame_.SpaceUsedLong();
  for (const std::string& columns : columns_) bytes_ += sizeof(columns) + columns.capacity();
  for (const std::vector<uint64_t>& tokens : tokens_) bytes_ += tokens.capacity() * sizeof(uint64_t);
}

void PackedPlan::PackValidation() {
  if (!frame_.has_validation()) return;
  // Of one that was parsed: memory that the plan owns, and that goes with it.
  const std::unique_ptr<v1::Plan> validation(frame_.release_validation());
  validation_ = std::make_unique<const PackedPlan>(std::move(*validation));
  instructions_ += validation_->instructions();
  bytes_ += validation_->bytes();
}

absl::Status PackedPlan::Explain(int program, const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::InternalError(absl::StrCat("iteration ", frame_.iteration(), ": the columns of program ",
                                          program,
                                          ", which were made here, cannot be read: ", status.message()));
}

absl::Status PackedPlan::Unpack(int program, v1::Program* into) const {
  if (columns_[program].empty()) return absl::OkStatus();
  const std::vector<uint64_t>& tokens = tokens_[frame_.programs(program).replica()];
  return Explain(program, UnpackInstructions(columns_[program], tokens, MostInstructions(*into, tokens),
                                             into->mutable_instructions()));
}

absl::StatusOr<std::vector<v1::Op>> PackedPlan::Ops(int program) const {
  const v1::Program& kept = frame_.programs(program);
  std::vector<v1::Op> ops;
  if (columns_[program].empty()) {
    for (const v1::Instruction& instruction : kept.instructions()) ops.push_back(instruction.op());
    return ops;
  }
  absl::StatusOr<std::vector<v1::Op>> read =
      UnpackOps(columns_[program], MostInstructions(kept, tokens_[kept.replica()]));
  PENSTOCK_RETURN_IF_ERROR(Explain(program, read.status()));
  return read;
}

absl::StatusOr<v1::Program> PackedPlan::Program(int program) const {
  v1::Program unpacked = frame_.programs(program);
  PENSTOCK_RETURN_IF_ERROR(Unpack(program, &unpacked));
  return unpacked;
}

absl::StatusOr<v1::Plan> PackedPlan::Plan() const {
  v1::Plan plan = frame_;
  for (int program = 0; program < plan.programs_size(); ++program)
    PENSTOCK_RETURN_IF_ERROR(Unpack(program, plan.mutable_programs(program)));
  if (validation_ == nullptr) return plan;
  PENSTOCK_ASSIGN_OR_RETURN(*plan.mutable_validation(), validation_->Plan());
  return plan;
}

absl::StatusOr<v1::Plan> PackedPlan::PlanFor(int program) const {
  v1::Plan plan = frame_;
  PENSTOCK_RETURN_IF_ERROR(Unpack(program, plan.mutable_programs(program)));
  if (validation_ == nullptr) return plan;
  PENSTOCK_ASSIGN_OR_RETURN(*plan.mutable_validation(), validation_->PlanFor(program));
  return plan;
}

void PackedPlan::CompactTo(v1::Plan* plan, google::protobuf::RepeatedPtrField<std::string>* columns) const {
  *plan = frame_;
  for (const std::string& of_program : columns_) *columns->Add() = of_program;
  if (validation_ != nullptr) validation_->CompactTo(plan->mutable_validation(), columns);
}

}  // namespace penstock
