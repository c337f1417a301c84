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

}  // namespace

absl::Status UnpackProgram(v1::StreamProgramsResponse* response) {
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

absl::Status UnpackPrograms(google::protobuf::RepeatedPtrField<std::string>* columns, v1::Plan* plan) {
  if (columns->empty()) return absl::OkStatus();
  if (columns->size() != plan->programs_size()) {
    return absl::InvalidArgumentError(absl::StrCat("instruction_columns: ", columns->size(),
                                                   " programs, and the plan has ", plan->programs_size()));
  }
  std::vector<std::vector<uint64_t>> tokens;
  for (const v1::Replica& replica : plan->replicas()) tokens.push_back(TokensOf(replica.micro_batches()));
  for (int rank = 0; rank < columns->size(); ++rank) {
    v1::Program* const program = plan->mutable_programs(rank);
    if (columns->at(rank).empty()) continue;
    if (program->replica() >= tokens.size())
      return absl::InvalidArgumentError(absl::StrCat("plan.programs[", rank, "].replica: there is none"));
    PENSTOCK_RETURN_IF_ERROR(
        NameField(TakeInstructions(columns->at(rank), tokens[program->replica()], program), plan->iteration(),
                  absl::StrCat("instruction_columns[", rank, "]")));
  }
  columns->Clear();
  return absl::OkStatus();
}

}  // namespace penstock
