#include "worker/runtime/worker_process.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/dataset/indexed_dataset.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "worker/agent/planner_agent.h"
#include "worker/comm/communicator.h"
#include "worker/device/device.h"
#include "worker/device/simulated/simulated_device.h"
#include "worker/memory/tensor_memory.h"
#include "worker/runtime/checkpoint_store.h"
#include "worker/runtime/trainer.h"
#include "worker/runtime/training_loop.h"

namespace penstock::worker {
namespace {

uint64_t RandomIncarnation() {
  std::random_device device;
  const uint64_t value = (uint64_t{device()} << 32) | device();
  return value != 0 ? value : 1;
}

// What the rank computes on, and the data that it reads.
struct Accelerator {
  std::unique_ptr<IndexedDataset> dataset;
  std::unique_ptr<Device> device;
};

absl::StatusOr<Accelerator> MakeAccelerator(const RunOptions& options) {
  Accelerator accelerator;
  if (options.device == kSimulatedDevice) {
    accelerator.device = MakeSimulatedDevice(options.simulation);
    return accelerator;
  }
  PENSTOCK_ASSIGN_OR_RETURN(accelerator.dataset, IndexedDataset::Open(options.dataset));
  PENSTOCK_ASSIGN_OR_RETURN(accelerator.device, MakeTorchDevice(options.device, accelerator.dataset.get()));
  return accelerator;
}

// What the worker has once it is registered and the others are there. Members go away in reverse order.
struct Joined {
  std::unique_ptr<StoreServer> store;
  std::unique_ptr<Communicator> communicator;
};

absl::StatusOr<Joined> Join(const RunOptions& options, PlannerAgent& agent, Device& device,
                            Shutdown& shutdown) {
  const Registration& self = agent.registration();
  Joined joined;
  if (self.rank == 0) {
    PENSTOCK_ASSIGN_OR_RETURN(joined.store, StoreServer::Start());
    agent.AnnounceRendezvous(absl::StrCat(options.host, ":", joined.store->port()));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Rendezvous rendezvous,
                            agent.WaitUntilReady(absl::Seconds(options.ready_timeout_s)));
  const CommunicatorOptions communication = {
      .rank = self.rank,
      .world_size = self.job.world_size(),
      .host = options.host,
      .rendezvous_address = rendezvous.address,
      .epoch = self.epoch,
      .groups = self.job.topology.GroupsOf(self.rank),
      .timeout = std::chrono::seconds(options.transfer_timeout_s),
      .connect_timeout = std::chrono::seconds(options.connect_timeout_s)};
  PENSTOCK_ASSIGN_OR_RETURN(joined.communicator, device.MakeCommunicator(communication));
  Communicator* communicator = joined.communicator.get();
  shutdown.AddHandler(
      [communicator](const absl::Status& why) { communicator->Abort(std::string(why.message())); });
  return joined;
}

absl::Status Train(PlannerAgent& agent, Trainer& trainer) {
  agent.StartPrograms(trainer.first_iteration());
  return RunTrainingLoop(agent, {.run = [&](const Program& program) { return trainer.Run(program); },
                                 .after_iteration = [&](uint64_t i) { return trainer.AfterIteration(i); }});
}

// Says to the planner how it ended and returns the reason that is worth telling the user.
absl::Status Conclude(const absl::Status& status, PlannerAgent& agent, const Shutdown& shutdown) {
  if (status.ok() || shutdown.signalled()) {
    agent.Leave();
    if (!status.ok()) return shutdown.reason();
    LogInfo("the job is finished", {{"rank", agent.registration().rank}});
    return status;
  }
  if (!shutdown.reason().ok()) return shutdown.reason();
  return agent.ReportFailure(status);
}

absl::StatusOr<std::unique_ptr<PlannerAgent>> RegisterAgent(const RunOptions& options,
                                                            uint64_t first_iteration) {
  return PlannerAgent::Register({.planner = options.planner,
                                 .job_id = options.job_id,
                                 .host = options.host,
                                 .rank = options.rank,
                                 .incarnation = RandomIncarnation(),
                                 .first_iteration = first_iteration});
}

}  // namespace

absl::Status RunWorker(const RunOptions& options, Shutdown& shutdown) {
  CountCpuTensors();
  at::set_num_threads(static_cast<int>(options.threads));
  at::set_num_interop_threads(1);
  PENSTOCK_ASSIGN_OR_RETURN(const Accelerator accelerator, MakeAccelerator(options));
  std::optional<CompleteCheckpoint> checkpoint;
  if (options.resume) {
    PENSTOCK_ASSIGN_OR_RETURN(checkpoint, FindNewestCheckpoint(options.checkpoint_dir));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PlannerAgent> agent,
                            RegisterAgent(options, checkpoint.has_value() ? checkpoint->next_iteration : 0));
  const Registration& self = agent->registration();
  LogInfo("registered", {{"job", options.job_id}, {"rank", self.rank}, {"epoch", self.epoch}});
  shutdown.AddHandler([&agent](const absl::Status& why) { agent->Stop(why); });
  agent->SetFailureListener([&shutdown](const absl::Status& why) { shutdown.Request(why); });

  absl::Status status;
  absl::StatusOr<Joined> joined = Join(options, *agent, *accelerator.device, shutdown);
  status = joined.status();
  if (status.ok()) {
    Trainer trainer({.registration = &self,
                     .device = accelerator.device.get(),
                     .communicator = joined->communicator.get(),
                     .checkpoint_dir = options.checkpoint_dir,
                     .checkpoint = checkpoint,
                     .gradients_dir = options.gradients_dir});
    status = Train(*agent, trainer);
  }
  // The planner hears of a failure before the peers see this rank's connections close, so that it knows what
  // came first.
  status = Conclude(status, *agent, shutdown);
  shutdown.Disarm();
  return status;
}

}  // namespace penstock::worker
