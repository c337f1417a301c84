// What one rank trains with: its stages, their optimizer, the executor that runs programs on them, and
// checkpoints of it all.
//
//   Trainer trainer({.registration = &agent->registration(), ...});
//   ... ask for programs from trainer.first_iteration() ...
//   PENSTOCK_ASSIGN_OR_RETURN(IterationResult result, trainer.Run(program));
//   PENSTOCK_ASSIGN_OR_RETURN(PartWriter part, trainer.Part(/*training_goes_on=*/true));   // for a
//   checkpoint
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint_part.h"
#include "worker/agent/control_plane.h"
#include "worker/checkpoint/tensor_file.h"
#include "worker/checkpoint/tensor_piece.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/model/stage.h"
#include "worker/model/stage_group.h"
#include "worker/optimizer/adamw.h"
#include "worker/runtime/checkpoint_store.h"
#include "worker/runtime/executor.h"
#include "worker/runtime/token_reader.h"
#include "worker/shares/reshard_routes.h"
#include "worker/shares/resharding.h"
#include "worker/shares/share_layout.h"

namespace penstock::worker {

// All pointers must outlive the trainer.
struct TrainerParts {
  const Registration* registration = nullptr;
  Device* device = nullptr;
  Communicator* communicator = nullptr;
  // Where checkpoints are written; empty: none are.
  std::string checkpoint_dir = {};
  // What to continue from.
  std::optional<Checkpoint> checkpoint = {};
  // Folder of a checkpoint whose parameters training begins with; empty: with those of the seed.
  std::string init_from = {};
  // The same of all that adapters leave frozen, which no checkpoint of the run has.
  std::string base = {};
  // What this rank says to all others in an iteration (ExecutorParts).
  std::function<Votes()> votes = {};
  // Where the reduced gradients of every iteration are written; empty: they are not.
  std::string gradients_dir = {};
  // Whether holds() is asked for. On a GPU the host then waits for sums over ranks before each step.
  bool watches_steps = false;
  // Of a round in which parameters come from shares and gradients go there (MakeReshardRoutes).
  int64_t round_bytes = kRoundBytes;
};

class Trainer {
 public:
  explicit Trainer(TrainerParts parts);

  uint64_t first_iteration() const;

  // That the program is run soon: what it needs is made ready beside what runs. Does nothing before the first
  // Run.
  void Prepare(std::shared_ptr<const Program> program);

  // Runs an iteration. The first program also says which stages this rank holds: they are built, and read
  // from the checkpoint, then. Where parameters live in shares these are read then, and the stages are built
  // anew for every program of another strategy than the one before. Then the program's validation, where it
  // has one. Possible errors: those of Executor::Run, of building the stages and of reading the checkpoint.
  absl::StatusOr<IterationResult> Run(const Program& program);

  // What writes this rank's part of a checkpoint, a tensor file: what it alone holds (of a divided optimizer
  // state), and of what the replicas of its stages hold too, its share. `training_goes_on`: of a copy, so
  // that the next iteration may run meanwhile. Otherwise it must not. What is written ends with the error of
  // `still_wanted` when there is one. Possible errors: OUT_OF_RANGE (a parameter is not finite; names it),
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<PartWriter> Part(bool training_goes_on,
                                  std::function<absl::Status()> still_wanted = nullptr) const;

  // The iteration that what this rank holds continues with, after errors of Run too. Nothing: a step of the
  // optimizer has begun and not ended; or nothing is built. With `watches_steps`.
  std::optional<uint64_t> holds() const { return holds_; }

  // As Part, while nothing runs: also of what other holders have too, the share of the one behind this rank
  // (worker/runtime/holder_rings.h). What is written ends with the error of `still_wanted` when there is one.
  absl::StatusOr<PartWriter> PartOfRescue(std::function<absl::Status()> still_wanted) const;

  // Blocks until all ranks are here. Whether any of them says so. Possible errors: those of AllReduceSum.
  absl::StatusOr<bool> Meet(bool says = false);

 private:
  const JobConfig& job() const { return job_; }
  // Strategies that the job got since it was registered come with their programs: this one's is known from
  // now on. So is that of its validation.
  void LearnStrategies(const Program& program);
  // Of a strategy that this worker did not register with: all ranks enter it at the same program, and connect
  // then.
  absl::Status JoinStrategy(const Program& program);
  // With which the passes of this rank's stages exchange, on the strategy that is entered.
  StageGroup& group() const;
  // What is trained: the stages of the program, or the share, with optimizer and checkpoint.
  absl::Status Build(const Program& program);
  absl::Status MakeShare();
  // Those of the program, on the strategy that is entered; initial values come from `seed`.
  absl::Status MakeStages(const Program& program, std::optional<uint64_t> seed);
  // From now on programs are of this one's strategy. Of shares, in place of the stages of another one.
  absl::Status Enter(const Program& program);
  // A program without its validation.
  absl::StatusOr<IterationResult> RunPasses(const Program& program);
  void MakeResharding(const Program& program);
  const std::shared_ptr<TokenReader>& TokensOf(uint32_t strategy);
  // By name. A checkpoint holds one of the copies of what stages share.
  std::vector<TensorPiece> Parameters() const;
  // Without those that are copies of another stage's.
  std::vector<TensorPiece> ParametersOf(Holders holders) const;
  // Of the parameters that training begins with, before the optimizer copies them.
  absl::Status SetInitialValues() const;
  // What does not learn, whether training begins or goes on.
  absl::Status SetFrozenValues(const std::vector<const FlatParameters*>& stages) const;
  // Of masters, of which those parameters are the rounding: from the same files.
  absl::Status SetInitialMasters() const;
  bool BeginsWithAModel() const;
  absl::Status CheckFinite() const;
  // What this rank writes of a checkpoint.
  enum class Shares : uint8_t { kOwn, kOwnAndNext };
  std::vector<NamedTensor> PartTensors(Shares shares) const;
  absl::Status Restore();
  absl::Status DumpGradients(uint64_t iteration);

  const TrainerParts parts_;
  // Grows by strategies.
  JobConfig job_;
  // Those of them that the communicator has joined.
  std::set<uint32_t> joined_;
  // Where parameters live in shares: who has what, and this rank's.
  std::optional<ShareLayout> layout_;
  std::optional<FlatParameters> share_;
  // Of the strategy that is entered: its number, the job as it is for it.
  uint32_t strategy_ = 0;
  JobConfig strategy_job_;
  std::map<uint32_t, std::unique_ptr<Stage>> stages_;
  // What is trained: of all stages, in stage order, or of the share.
  std::vector<NamedParameter> parameters_;
  // Of which tensor rank they are.
  int tensor_rank_ = 0;
  std::unique_ptr<AdamW> optimizer_;
  std::optional<uint64_t> holds_;
  // By strategy that was entered: what goes between shares and its stages.
  std::map<uint32_t, std::shared_ptr<const ReshardRoutes>> routes_;
  std::unique_ptr<Resharding> resharding_;
  std::unique_ptr<InstructionTimer> timer_;
  std::unique_ptr<InstructionOrder> order_;
  // By strategy: programs are prepared before theirs is entered.
  std::map<uint32_t, std::shared_ptr<TokenReader>> tokens_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace penstock::worker
