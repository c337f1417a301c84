// A worker without LibTorch: registers, heartbeats, reads its programs and reports every instruction as
// predicted, or as much longer as it is told to.
//
//   FakeWorker worker(address, "job", /*incarnation=*/101);
//   ASSERT_TRUE(worker.Register().ok());
//   worker.StartHeartbeats();
//   absl::Status end = worker.Work();    // until the stream ends
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/sync/sync.h"
#include "common/sync/ticker.h"
#include "penstock/client/planner_client.h"

namespace penstock {

class FakeWorker {
 public:
  FakeWorker(const std::string& address, std::string job_id, uint64_t incarnation);
  ~FakeWorker();

  absl::Status Register(int32_t wanted_rank = -1, uint64_t first_iteration = 0);
  // In the background, at the interval the planner asked for. Rank 0 tells a rendezvous address.
  void StartHeartbeats();
  // As a process that is killed: no more heartbeats, no good-bye.
  void StopHeartbeats();

  // One heartbeat, now.
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(const std::string& failure = "", bool leaving = false);

  // How many times as long as predicted an instruction of an iteration takes. Set it while nothing is
  // reported.
  using Slowness = std::function<double(uint64_t iteration, const v1::Instruction& instruction)>;
  void set_slowness(Slowness slowness) { slowness_ = std::move(slowness); }

  // Reads and reports iterations from `from` on until the stream ends, or `count` of them.
  absl::Status Work(uint64_t from = 0, uint64_t count = ~uint64_t{0});
  absl::Status Report(const v1::StreamProgramsResponse& program);

  uint32_t rank() const { return rank_; }
  uint64_t epoch() const { return epoch_; }
  const std::vector<uint64_t>& done() const { return done_; }
  // Of the plans of done(), in hexadecimal.
  const std::vector<std::string>& hashes() const { return hashes_; }
  v1::StreamProgramsRequest StreamRequest(uint64_t from) const;
  // What the last heartbeat in the background was answered.
  v1::HeartbeatResponse last_heartbeat() const;

 private:
  PlannerClient client_;
  const std::string job_id_;
  const uint64_t incarnation_;
  uint32_t rank_ = 0;
  uint64_t epoch_ = 0;
  absl::Duration heartbeat_interval_;
  Slowness slowness_;
  std::vector<uint64_t> done_;
  std::vector<std::string> hashes_;
  mutable Mutex mutex_;
  v1::HeartbeatResponse last_heartbeat_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Ticker> heartbeats_;
};

}  // namespace penstock
