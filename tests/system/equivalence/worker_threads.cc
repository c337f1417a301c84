#include "tests/system/equivalence/worker_threads.h"

#include <cstdlib>
#include <thread>
#include <utility>

#include "common/logging/logging.h"
#include "worker/runtime/shutdown.h"
#include "worker/runtime/worker_process.h"

namespace penstock::testing {
namespace {

// A rank that is stuck after a failure ends the process after this time.
constexpr absl::Duration kGrace = absl::Seconds(60);

}  // namespace

void PrepareForWorkerThreads() {
  // LibTorch takes its number of threads once.
  static bool prepared = false;
  if (std::exchange(prepared, true)) return;
  // As for the workers of a cluster, which are processes.
  setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16", /*overwrite=*/1);
  // Several lines a rank, of thousands of jobs.
  ConfigureLogging(LogLevel::kWarning, LogFormat::kText);
  worker::PrepareProcess();
}

std::vector<absl::Status> RunWorkerThreads(const worker::RunOptions& options, uint32_t ranks) {
  std::vector<absl::Status> ends(ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&options, rank, &end = ends[rank]] {
      worker::RunOptions own = options;
      own.rank = rank;
      // Sees no signals, which this process does not block: they end it at once.
      worker::Shutdown shutdown(kGrace);
      end = worker::RunWorker(own, shutdown);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

}  // namespace penstock::testing
