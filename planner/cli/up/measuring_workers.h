// Runs penstock-worker to measure something of a model on this machine, as many side by side as will train
// there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct MeasuringWorkers {
  // The penstock-worker binary, and its command: "profile", "profile-check".
  std::string worker_binary;
  std::string command;
  // More flags of that command.
  std::vector<std::string> arguments = {};
  // And more of all but the first, which are its load.
  std::vector<std::string> load_arguments = {};
  v1::ModelSpec model;
  // Threads of each, and how many measure at the same time, so that it is known how much they slow each other
  // down.
  uint32_t threads = 1;
  uint32_t copies = 1;
  // The GPU of each copy; empty: they measure on CPU.
  std::vector<uint32_t> gpus = {};
  // That each takes for measuring, about.
  double seconds = 6;
  // Where the first keeps what it finds until it is done, and goes on from after an interruption; empty:
  // nowhere.
  std::string so_far = {};
  // Waits at most so long for a request to stop; true when there is one. Called again and again.
  std::function<bool(absl::Duration)> stopped;
};

// Blocks until the first of them has written `output`; the others are its load, and are ended then. Possible
// errors: CANCELLED (stopped), UNAVAILABLE (a worker could not be started, failed or took far too long; names
// its log, which is beside the output).
absl::Status RunMeasuringWorkers(const MeasuringWorkers& workers, const std::string& output);

}  // namespace penstock::cli
