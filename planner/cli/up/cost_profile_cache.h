// The cost profile of a model on this machine: measured once with the worker, then read from a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct MeasureOptions {
  // The penstock-worker binary.
  std::string worker_binary;
  v1::ModelSpec model;
  // Threads of each worker, and workers of the job on this machine: as many copies measure at the same time,
  // so that the profile knows how much they slow each other down.
  uint32_t threads = 1;
  uint32_t copies = 1;
  // The GPU of each copy; empty: they measure on CPU.
  std::vector<uint32_t> gpus = {};
  // Of the meshes, ascending: layers are measured at these degrees too, and at no others.
  std::vector<uint32_t> tensor_degrees = {1};
  // Shares of layers over so many context ranks are measured too, ascending, each above 1.
  std::vector<uint32_t> context_ranks = {};
  uint32_t expert = 1;
  // Time spent on measuring whole layers; at a tensor degree it is up to a third more, and for a number of
  // context ranks.
  double seconds = 6;
  // Folder of cached profiles; made when it is missing.
  std::string cache_dir;
  // Measure although there is one.
  bool anew = false;
  // Called when it has to be measured, before that begins. `goes_on`: with what an interrupted measurement
  // has found.
  std::function<void(bool goes_on)> on_start;
  // Waits at most so long for a request to stop; true when there is one.
  std::function<bool(absl::Duration)> stopped;
};

struct MeasuredProfile {
  v1::ProfileFile file = {};
  // The cached file, for the user to look at; empty where it was not kept.
  std::string path = {};
  // Why: what disturbed the measurement, although it was measured again.
  std::string disturbance = {};
};

// Of stage groups of up to `most` context ranks, those numbers of which shares are worth measuring: 2 and 4.
// What a share takes beside what its tokens take goes by its rows, however many divide them. Empty: the model
// cannot have several.
std::vector<uint32_t> ContextRanksToMeasure(const v1::ModelSpec& model, uint32_t most);

// Of a measuring worker. Nothing where there are none.
std::vector<std::string> ContextArguments(const std::vector<uint32_t>& context_ranks);

// The name of the cached file: all that the cost of a layer depends on, the kind of GPU too, readable,
// because users delete a file to have it measured anew.
std::string CostProfileName(const MeasureOptions& options);

// Blocks for about `seconds` when the cache has no profile of this model, machine and number of workers. What
// was disturbed is not kept: the next one measures anew. One that is interrupted leaves what it has found
// beside the cached file, for the next one within a day.
// Possible errors: CANCELLED (stopped), UNAVAILABLE (the worker could not be started, failed or took far too
// long; names its log), those of reading and writing the cache.
absl::StatusOr<MeasuredProfile> MeasureOrReadProfile(const MeasureOptions& options);

}  // namespace penstock::cli
