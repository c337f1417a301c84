// The calls that a worker makes to the planner, with deadlines, in plain values. Keeps no state but the
// connection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/grpc/channel.h"
#include "worker/agent/control_plane.h"

namespace penstock::worker {

// Who speaks: fields of every call after registration.
struct WorkerIdentity {
  std::string job_id = {};
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint64_t epoch = 0;
};

struct RegistrationRequest {
  std::string job_id = {};
  uint64_t incarnation = 0;
  std::string host = {};
  std::optional<uint32_t> rank = {};
  uint64_t first_iteration = 0;
};

struct RegistrationAnswer {
  Registration registration;
  absl::Duration heartbeat_interval;
};

struct Beat {
  std::string rendezvous_address = {};
  std::string failure = {};
  bool leaving = false;
};

enum class EpochState { kForming, kReady, kFailed, kFinished };

struct BeatAnswer {
  EpochState state = EpochState::kForming;
  std::string failure = {};
  Rendezvous rendezvous = {};
};

// A StreamPrograms call. Do not Read again after its end. Read comes from one thread; Cancel from any.
class ProgramStream {
 public:
  virtual ~ProgramStream() = default;
  // Blocks until a program arrives; nullopt: the job is finished.
  // Possible errors: those of StreamPrograms, of AddStrategy and of ProgramFromProto; CANCELLED.
  virtual absl::StatusOr<std::optional<Program>> Read() = 0;
  virtual void Cancel() = 0;
};

// Thread-safe. Every unary call ends within its deadline, `timeout`.
class PlannerLink {
 public:
  virtual ~PlannerLink() = default;

  // `planner` is "host:port", or those of several planners of which one leads (common/grpc/channel.h). Does
  // not connect yet.
  static std::unique_ptr<PlannerLink> Connect(const std::string& planner, const ChannelSecurity& security);

  virtual absl::StatusOr<RegistrationAnswer> Register(const RegistrationRequest& request,
                                                      absl::Duration timeout) = 0;
  virtual absl::StatusOr<BeatAnswer> Heartbeat(const WorkerIdentity& self, const Beat& beat,
                                               absl::Duration timeout) = 0;
  virtual absl::Status Report(const WorkerIdentity& self, const IterationReport& report,
                              absl::Duration timeout) = 0;
  // The first iteration that some rank of the job has not reported. Possible errors, also: ABORTED (the job
  // is not in this worker's epoch any more).
  virtual absl::StatusOr<uint64_t> Completed(const WorkerIdentity& self, absl::Duration timeout) = 0;
  // `job` must outlive the stream, which adds to it the strategies that it tells of.
  virtual std::unique_ptr<ProgramStream> StreamPrograms(const WorkerIdentity& self, JobConfig* job,
                                                        uint64_t from_iteration) = 0;
};

}  // namespace penstock::worker
