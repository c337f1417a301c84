#include "planner/core/verify/report.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock::core::verify {
namespace {

// A plan that is wrong everywhere still has a readable report.
constexpr int kListedPerRule = 32;

std::string PartName(const v1::Instruction& instruction) {
  static constexpr const char* kTransfers[] = {" activation", " gradient"};
  static constexpr const char* kWaits[] = {" received activation", " received gradient", " sent activation",
                                           " sent gradient"};
  static constexpr const char* kFrees[] = {" output activation", " input gradient", " loaded tokens"};
  const uint32_t part = instruction.part();
  switch (instruction.op()) {
    case v1::OP_SEND:
    case v1::OP_RECV:
      if (part < 2) return kTransfers[part];
      break;
    case v1::OP_WAIT:
      if (part < 4) return kWaits[part];
      break;
    case v1::OP_FREE:
      if (part < 3) return kFrees[part];
      break;
    default:
      if (part == 0) return "";
  }
  return absl::StrCat(" part ", part);
}

}  // namespace

std::string OpName(v1::Op op) {
  if (!v1::Op_IsValid(op)) return absl::StrCat("op ", static_cast<int>(op));
  return v1::Op_Name(op).substr(3);  // without "OP_"
}

std::string Describe(const v1::Instruction& instruction) {
  return absl::StrCat("instruction ", instruction.id(), " (", OpName(instruction.op()), PartName(instruction),
                      ", micro-batch ", instruction.micro_batch(), ", stage ", instruction.stage(), ")");
}

void Report::AddAt(Rule rule, int rank, const std::string& message) {
  Append(rule, rank, -1, absl::StrCat("rank ", rank, ": ", message));
}

void Report::AddAt(Rule rule, int rank, const v1::Instruction& instruction, const std::string& message) {
  Append(rule, rank, instruction.id(),
         absl::StrCat("rank ", rank, ", ", Describe(instruction), ": ", message));
}

void Report::Append(Rule rule, int64_t rank, int64_t instruction, std::string message) {
  if (counts_[rule]++ < kListedPerRule)
    violations_.push_back({static_cast<int>(rule), rank, instruction, std::move(message)});
}

}  // namespace penstock::core::verify
