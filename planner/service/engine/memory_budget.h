// How much memory a job may take for batches, plans and reports: its own limit, or its share of what all jobs
// may take together, whatever is less. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace penstock {

class MemoryBudget {
 public:
  MemoryBudget(size_t job_bytes, size_t all_bytes) : job_bytes_(job_bytes), all_bytes_(all_bytes) {}

  void SetJobs(size_t jobs) { jobs_ = std::max<size_t>(jobs, 1); }
  size_t OfOneJob() const { return std::min(job_bytes_, all_bytes_ / jobs_.load()); }
  // Of it batches ahead may take a half and plans ahead the other one: a job that has as many batches ahead
  // as it may is still planned ahead.
  size_t AheadOfOneJob() const { return OfOneJob() / 2; }

 private:
  const size_t job_bytes_;
  const size_t all_bytes_;
  std::atomic<size_t> jobs_ = 1;
};

}  // namespace penstock
