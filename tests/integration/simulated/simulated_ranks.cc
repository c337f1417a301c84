#include "tests/integration/simulated/simulated_ranks.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/comm/communicator.h"
#include "worker/device/simulated/simulated_device.h"
#include "worker/runtime/communication.h"
#include "worker/runtime/trainer.h"

namespace penstock::worker {
namespace {

absl::Status RunRank(const Registration& self, const std::string& rendezvous,
                     const std::vector<Program>& programs, const SimulationOptions& options,
                     std::vector<IterationResult>& iterations) {
  const std::unique_ptr<Device> device = MakeSimulatedDevice(options);
  CommunicatorOptions communication;
  communication.rendezvous_address = rendezvous;
  SetGroups(self.job, self.rank, communication);
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator,
                            device->MakeCommunicator(communication));
  Trainer trainer({.registration = &self, .device = device.get(), .communicator = communicator.get()});
  for (const Program& program : programs) {
    PENSTOCK_ASSIGN_OR_RETURN(IterationResult result, trainer.Run(program));
    iterations.push_back(std::move(result));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<RankRun> RunSimulatedRanks(const JobConfig& job,
                                       const std::vector<std::vector<Program>>& programs,
                                       const SimulationOptions& options) {
  std::vector<RankRun> runs(programs.size());
  const absl::StatusOr<std::unique_ptr<StoreServer>> server = StoreServer::Start("127.0.0.1");
  if (!server.ok()) {
    for (RankRun& run : runs) run.status = server.status();
    return runs;
  }
  const std::string rendezvous = absl::StrCat("127.0.0.1:", (*server)->port());
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < programs.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const Registration self = {.rank = rank, .epoch = 1, .job = job};
      runs[rank].status = RunRank(self, rendezvous, programs[rank], options, runs[rank].iterations);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return runs;
}

}  // namespace penstock::worker
