#include "common/compact/packed_program.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/compact/instruction_columns.h"
#include "common/compact/micro_batch_columns.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

absl::Status NameField(const absl::Status& status, uint64_t iteration, absl::string_view field) {
  if (status.ok()) return status;
  return {status.code(), absl::StrCat("iteration ", iteration, ": ", field, ": ", status.message())};
}

absl::Status TakeInstructions(absl::string_view columns, absl::Span<const uint64_t> tokens,
                              v1::Program* program) {
  if (!program->instructions().empty())
    return absl::InvalidArgumentError("the program has its instructions, too");
  return UnpackInstructions(columns, tokens, MostInstructions(*program, tokens),
                            program->mutable_instructions());
}

// Of one response, without its validation.
absl::Status TakeColumns(v1::StreamProgramsResponse* response) {
  if (!response->micro_batch_columns().empty()) {
    PENSTOCK_RETURN_IF_ERROR(
        NameField(UnpackMicroBatches(response->micro_batch_columns(), response->mutable_micro_batches(),
                                     response->mutable_samples()),
                  response->iteration(), "micro_batch_columns"));
    response->clear_micro_batch_columns();
  }
  if (!response->instruction_columns().empty()) {
    PENSTOCK_RETURN_IF_ERROR(
        NameField(TakeInstructions(response->instruction_columns(), TokensOf(response->micro_batches()),
                                   response->mutable_program()),
                  response->iteration(), "instruction_columns"));
    response->clear_instruction_columns();
  }
  return absl::OkStatus();
}

// `first`: the place of its first program's columns.
absl::Status TakePrograms(const google::protobuf::RepeatedPtrField<std::string>& columns, int first,
                          v1::Plan* plan) {
  std::vector<std::vector<uint64_t>> tokens;
  for (const v1::Replica& replica : plan->replicas()) tokens.push_back(TokensOf(replica.micro_batches()));
  for (int rank = 0; rank < plan->programs_size(); ++rank) {
    v1::Program* const program = plan->mutable_programs(rank);
    const std::string& of_program = columns.at(first + rank);
    if (of_program.empty()) continue;
    if (program->replica() >= tokens.size())
      return absl::InvalidArgumentError(absl::StrCat("plan.programs[", rank, "].replica: there is none"));
    PENSTOCK_RETURN_IF_ERROR(NameField(TakeInstructions(of_program, tokens[program->replica()], program),
                                       plan->iteration(),
                                       absl::StrCat("instruction_columns[", first + rank, "]")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status UnpackProgram(v1::StreamProgramsResponse* response) {
  PENSTOCK_RETURN_IF_ERROR(TakeColumns(response));
  // A validation has none itself.
  return response->has_validation() ? TakeColumns(response->mutable_validation()) : absl::OkStatus();
}

absl::Status UnpackPrograms(google::protobuf::RepeatedPtrField<std::string>* columns, v1::Plan* plan) {
  if (columns->empty()) return absl::OkStatus();
  const int validated = plan->validation().programs_size();
  if (columns->size() != plan->programs_size() + validated) {
    return absl::InvalidArgumentError(absl::StrCat("instruction_columns: ", columns->size(),
                                                   " programs, and the plan has ",
                                                   plan->programs_size() + validated));
  }
  PENSTOCK_RETURN_IF_ERROR(TakePrograms(*columns, 0, plan));
  if (validated > 0)
    PENSTOCK_RETURN_IF_ERROR(TakePrograms(*columns, plan->programs_size(), plan->mutable_validation()));
  columns->Clear();
  return absl::OkStatus();
}

}  // namespace penstock
