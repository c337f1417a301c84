// The accelerator of one rank, simulated: it runs the plan's model of execution (plan.proto, Stream) with
// other ranks, in the times that the plan expects.
//
// Compute runs on the thread that calls; transfers and reductions run beside it, on a thread for each stream.
// Where ranks meet, they exchange the simulated times at which they are ready, over a network that really
// moves messages, and go on together from the latest of them. So every simulated time follows from the
// programs, from SimulationOptions and from what was really exchanged, and never from the speed of this
// machine; the wall clock only sets the pace.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/simulation/simulation_options.h"
#include "common/sync/task_thread.h"
#include "worker/comm/communicator.h"
#include "worker/device/instruction_timer.h"
#include "worker/device/simulated/durations.h"
#include "worker/device/simulated/pace.h"
#include "worker/device/simulated/timeline.h"
#include "worker/model/stage_group.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

struct SimulatedRankParts {
  SimulationOptions options = {};
  uint32_t rank = 0;
  // By strategy.
  std::vector<GroupPlace> places = {};
  // Of the communicator's options: together they connect all ranks of the job.
  std::vector<std::vector<uint32_t>> groups = {};
  // Moves the messages. Its methods may be called from several threads.
  std::unique_ptr<Communicator> network = {};
  std::unique_ptr<WallClock> clock = {};
};

// A communicator for the executor, and what a timer asks (the methods of InstructionTimer). Transfers and
// reductions are those of the instruction that was begun last.
class SimulatedRank : public Communicator {
 public:
  explicit SimulatedRank(SimulatedRankParts parts);
  ~SimulatedRank() override;

  // An iteration starts, in simulated time, when this rank has ended the one before; the first one starts at
  // the same time on all ranks. The time until its program is there does not pass on the simulated clock.
  absl::Status StartIteration(const Program& program);
  // Compute: blocks until what the instruction waits for has ended, End until it has itself.
  absl::Status Begin(const Instruction& instruction);
  absl::Status End(const Instruction& instruction);
  // Simulated times; `started_unix_ns` is on one clock of the job that runs as fast as simulated time does.
  absl::StatusOr<IterationTimes> Finish();

  // Small messages stand for the tensors, whose storage is neither read nor written; for those without
  // elements, too: ranks meet in simulated time.
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Send(const at::Tensor& tensor, uint32_t peer,
                                                        uint32_t sequence) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> Receive(const at::Tensor& tensor, uint32_t peer,
                                                           uint32_t sequence) override;
  // The tensors are summed really. Blocking ones are for the compute stream and, where no simulated time
  // passes, between iterations; those that are started, for the collective stream.
  absl::Status AllReduceSum(std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllReduceSum(
      const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) override;
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartReduceScatterSum(
      const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) override;
  absl::Status AllGather(const std::vector<at::Tensor>& tensors, const std::vector<uint32_t>& group) override;
  // For the collective stream. The tensors are moved really.
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartAllToAll(const std::vector<at::Tensor>& sent,
                                                                 const std::vector<at::Tensor>& received,
                                                                 const std::vector<uint32_t>& group) override;
  // Of more than one rank: the place alone. Passes exchange no tensors.
  StageGroup* StageGroupOf(size_t strategy) override { return stage_groups_.at(strategy).get(); }
  absl::Status JoinPasses(size_t strategy, const PassGroups& passes,
                          const std::vector<std::vector<uint32_t>>& links) override;
  void Abort(const std::string& reason) override;

 private:
  // What a thread needs of a SEND or RECV.
  struct Meeting {
    uint32_t id = 0;
    bool sends = false;
    uint64_t iteration = 0;
    Transfer transfer = {};
    int64_t duration_ns = 0;
  };

  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartTransfer(uint32_t peer, uint32_t sequence);
  // The simulated time at which a transfer starts. Blocks until both ends have come to it.
  absl::StatusOr<int64_t> Meet(const Meeting& meeting);
  // Runs `meet`, whose answer is when the ranks of the collective start, on the thread of the collective
  // stream, for the instruction that was begun.
  absl::StatusOr<std::unique_ptr<PendingTransfer>> StartCollective(
      std::function<absl::StatusOr<int64_t>(int64_t ready_ns)> meet);
  // The latest `ready_ns` of the group; sums the tensors over it on the way.
  absl::StatusOr<int64_t> MeetGroup(int64_t ready_ns, std::vector<at::Tensor> tensors,
                                    const std::vector<uint32_t>& group);
  // When the ranks of a stage group start a pass that this rank is ready for at start_ns_, and how long it
  // takes: as long as on the slowest of them. Blocks until all have come to it. Sets start_ns_ and
  // duration_ns_.
  absl::Status MeetStageGroup(const Instruction& pass);
  // Writes down when an instruction that was ready, and met its peers, at `start_ns` starts and ends.
  void Settle(uint32_t id, const absl::StatusOr<int64_t>& start_ns, int64_t duration_ns);
  absl::Status AgreeOnOrigin();
  // In an instruction: that it is one of the compute stream.
  absl::Status CheckOnCompute(absl::string_view what) const;
  TaskThread& ThreadOf(Stream stream) { return threads_[static_cast<size_t>(stream) - 1]; }

  const SimulatedRankParts parts_;
  // By strategy.
  std::map<size_t, std::unique_ptr<StageGroup>> stage_groups_;
  const SimulatedDurations durations_;
  Timeline timeline_;
  Pace pace_;
  // Wall clock, in nanoseconds since the Unix epoch, at simulated time 0; 0 before it is agreed on.
  int64_t origin_unix_ns_ = 0;
  // Simulated time at which the next iteration starts.
  int64_t now_ns_ = 0;
  const Program* program_ = nullptr;
  // The instruction that was begun; where it is one of the compute stream, when it starts and how long it
  // takes.
  const Instruction* current_ = nullptr;
  int64_t start_ns_ = 0;
  int64_t duration_ns_ = 0;
  // By id of the instruction: of joint passes, what they took beyond what this rank computes.
  std::map<uint32_t, int64_t> exchanges_ns_;
  // Of the streams beside compute. Last, so that they end first.
  std::array<TaskThread, 3> threads_ = {TaskThread("previous"), TaskThread("next"),
                                        TaskThread("collectives")};
};

}  // namespace penstock::worker
