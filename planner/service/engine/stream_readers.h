// Who reads programs of a job now, and what it reads. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "common/sync/sync.h"
#include "penstock/v1/planner_service.pb.h"

namespace penstock {

class StreamReaders {
 public:
  // Returns what Remove takes.
  uint64_t Add(const v1::StreamProgramsRequest& request) {
    MutexLock lock(&mutex_);
    requests_[next_id_] = request;
    return next_id_++;
  }

  void Remove(uint64_t id) {
    MutexLock lock(&mutex_);
    requests_.erase(id);
  }

  // Workers train what they read, each iteration after the one before; others may want a plan for itself.
  bool AreWorkers() const {
    MutexLock lock(&mutex_);
    return std::ranges::all_of(requests_, [](const auto& one) { return one.second.incarnation() != 0; });
  }

  // What they asked for when they began.
  std::vector<v1::StreamProgramsRequest> requests() const {
    MutexLock lock(&mutex_);
    std::vector<v1::StreamProgramsRequest> requests;
    for (const auto& [id, request] : requests_) requests.push_back(request);
    return requests;
  }

 private:
  mutable Mutex mutex_;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, v1::StreamProgramsRequest> requests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
