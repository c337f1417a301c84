// What the service is measured under. Each scenario but RunPlans starts planners of its own and returns a
// JSON object: what it was asked, and what it measured. Times in milliseconds.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace penstock::bench {

using Json = nlohmann::ordered_json;

struct StarvationOptions {
  // Registrations that leave their stages to the planner, with so many typical samples each.
  uint32_t registrations = 8;
  uint32_t typical_samples = 1024;
  // What-ifs, and their samples.
  uint32_t what_ifs = 4;
  uint32_t samples = 300'000;
  absl::Duration time = absl::Seconds(40);
};

// Whether a job that trains is heard while others ask for as much as they may: the ages of its heartbeats,
// and how long its calls take.
absl::StatusOr<Json> RunStarvation(const StarvationOptions& options);

struct LoadOptions {
  std::string store = "sqlite";
  uint32_t jobs = 8;
  // Of each job; their product is its workers.
  uint32_t pipeline = 8;
  uint32_t data = 8;
  uint32_t look_ahead = 8;
  uint32_t samples = 1024;
  absl::Duration iteration = absl::Seconds(2);
  absl::Duration time = absl::Minutes(10);
  // Streams that are opened and never read.
  uint32_t lazy_readers = 16;
};

// Many workers of several jobs for a while: errors, waits, the time to hand over a program that is ready, and
// the planner's memory.
absl::StatusOr<Json> RunLoad(const LoadOptions& options);

struct SubmissionOptions {
  std::string store = "sqlite";
  uint32_t samples = 1024;
  uint32_t batches = 1000;
  // Clients that submit to a job of their own each, all at once.
  uint32_t clients = 8;
};

// What SubmitBatches takes until it is answered, so until the batch is on the disk.
absl::StatusOr<Json> RunSubmissions(const SubmissionOptions& options);

struct RecoveryOptions {
  std::string store = "sqlite";
  uint32_t iterations = 10'000;
};

// How long a planner that was killed takes to have a long job again, and what its events take on the disk.
absl::StatusOr<Json> RunRecovery(const RecoveryOptions& options);

struct ScaleOptions {
  uint32_t pipeline = 16;
  uint32_t data = 1024;
  uint32_t samples = 65'536;
};

// One batch of a job of very many ranks: what planning it takes, and how much is sent to each rank.
absl::StatusOr<Json> RunScale(const ScaleOptions& options);

struct PlanOptions {
  std::string planner;
  // Files, each a v1::PlanBatchRequest as it goes over the wire; they are sent in turn.
  std::vector<std::string> requests;
  uint32_t calls = 200;
  // Each with a connection of its own; they share the calls.
  uint32_t clients = 1;
};

// How long PlanBatch of a planner that runs takes, from the call to the answer, and how many are answered a
// second.
absl::StatusOr<Json> RunPlans(const PlanOptions& options);

}  // namespace penstock::bench
