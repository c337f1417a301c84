#include "worker/program/check_reshards.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "worker/program/describe.h"
#include "worker/program/passes.h"

namespace penstock::worker {
namespace {

absl::Status Wrong(const Program& program, const Instruction& instruction, const char* problem) {
  return absl::InvalidArgumentError(absl::StrCat(Describe(program, instruction), ": ", problem));
}

// How far a program has come, instruction by instruction.
class Walk {
 public:
  explicit Walk(const Program& program, RankGroup world) : program_(program), world_(std::move(world)) {}

  absl::Status Add(const Instruction& instruction) {
    if (instruction.op == Op::kReshard || instruction.op == Op::kOptimizerStep) {
      if (program_.groups[instruction.group] != world_) return Bad(instruction, "is not over all ranks");
    }
    switch (instruction.op) {
      case Op::kReduceGradients:
        return Bad(instruction, "the job has shares of parameters, whose gradients a RESHARD sums");
      case Op::kReshard:
        return AddReshard(instruction);
      case Op::kOptimizerStep:
        if (!took_) return Bad(instruction, "comes before the RESHARD of the gradients");
        return absl::OkStatus();
      default:
        break;
    }
    if (!IsPass(instruction.op)) return absl::OkStatus();
    if (!brought_) return Bad(instruction, "comes before the RESHARD of the parameters");
    if (took_) return Bad(instruction, "comes behind the RESHARD of the gradients");
    return absl::OkStatus();
  }

  absl::Status End() const {
    if (brought_ && (took_ || program_.forward_only)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the job has shares of parameters, but there is no RESHARD of the ",
                     brought_ ? "gradients" : "parameters"));
  }

 private:
  absl::Status Bad(const Instruction& instruction, const char* problem) const {
    return Wrong(program_, instruction, problem);
  }

  absl::Status AddReshard(const Instruction& instruction) {
    const bool brings = instruction.part == static_cast<uint32_t>(ReshardPart::kParameters);
    bool& done = brings ? brought_ : took_;
    if (done) return Bad(instruction, "comes a second time");
    if (!brings && !brought_) return Bad(instruction, "comes before the RESHARD of the parameters");
    done = true;
    return absl::OkStatus();
  }

  const Program& program_;
  const RankGroup world_;
  bool brought_ = false;
  bool took_ = false;
};

}  // namespace

absl::Status CheckReshards(const Program& program, const JobConfig& job) {
  if (!job.parameter_shares) {
    const auto reshard = std::ranges::find(program.instructions, Op::kReshard, &Instruction::op);
    if (reshard == program.instructions.end()) return absl::OkStatus();
    return Wrong(program, *reshard, "the job has no shares of parameters");
  }
  Walk walk(program, job.topology.WorldGroup());
  for (const Instruction& instruction : program.instructions) {
    if (absl::Status status = walk.Add(instruction); !status.ok()) return status;
  }
  return walk.End();
}

}  // namespace penstock::worker
