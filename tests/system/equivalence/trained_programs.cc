#include "tests/system/equivalence/trained_programs.h"

#include <ATen/Parallel.h>

#include <latch>
#include <memory>
#include <thread>
#include <utility>

#include "common/dataset/indexed_dataset.h"
#include "common/status/status_macros.h"
#include "tests/unit/worker/comm_testing.h"
#include "worker/device/device.h"
#include "worker/runtime/communication.h"
#include "worker/runtime/trainer.h"

namespace penstock::testing {
namespace {

using worker::IterationResult;

// One rank's iterations.
absl::StatusOr<std::vector<IterationResult>> RunRank(const worker::JobConfig& job, uint32_t rank,
                                                     const std::vector<worker::Program>& programs,
                                                     const IndexedDataset& dataset,
                                                     const std::string& gradients_dir,
                                                     worker::Communicator& communicator) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<worker::Device> device,
                            worker::MakeTorchDevice("cpu", &dataset));
  const worker::Registration self = {.rank = rank, .epoch = 1, .job = job};
  worker::Trainer trainer({.registration = &self,
                           .device = device.get(),
                           .communicator = &communicator,
                           .gradients_dir = gradients_dir});
  std::vector<IterationResult> results;
  for (const worker::Program& program : programs) {
    PENSTOCK_ASSIGN_OR_RETURN(results.emplace_back(), trainer.Run(program));
  }
  return results;
}

}  // namespace

absl::StatusOr<std::vector<TrainedIteration>> TrainPrograms(
    const worker::JobConfig& job, const std::vector<std::vector<worker::Program>>& programs,
    const std::string& dataset, const std::string& gradients_dir) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<IndexedDataset> samples, IndexedDataset::Open(dataset));
  const auto ranks = static_cast<uint32_t>(programs.size());
  const worker::CommTestServer server;
  std::vector<absl::StatusOr<std::vector<IterationResult>>> results(ranks, absl::UnknownError("not run"));
  // Nobody leaves before all have joined, nor before all are done: a connection that closes fails the others.
  std::latch joined(ranks);
  std::latch done(ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      worker::CommunicatorOptions options = server.Options(rank, ranks);
      worker::SetGroups(job, rank, options);
      const auto communicator = worker::MakeGlooCommunicator(options);
      joined.arrive_and_wait();
      if (communicator.ok()) {
        results[rank] = RunRank(job, rank, programs[rank], *samples, gradients_dir, **communicator);
      } else {
        results[rank] = communicator.status();
      }
      done.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<TrainedIteration> iterations(programs.front().size());
  for (const auto& of_rank : results) {
    PENSTOCK_RETURN_IF_ERROR(of_rank.status());
    for (size_t i = 0; i < iterations.size(); ++i) {
      iterations[i].loss += (*of_rank)[i].loss;
      iterations[i].gradient_norm = (*of_rank)[i].gradient_norm;
    }
  }
  return iterations;
}

}  // namespace penstock::testing
