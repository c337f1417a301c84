// The lock of a job, which all its parts share.
//
//   JobLock lock(record_.mutex());
//
// Parts of a job call each other with the lock held, and clang cannot tell that the mutex that one part
// reaches is the one that another does. So annotations name `job_lock`: it stands for the mutex of the job
// that the code belongs to. That is enough, as no code holds the locks of two jobs.
#pragma once

#include "absl/base/thread_annotations.h"
#include "common/sync/sync.h"

namespace penstock {

class ABSL_LOCKABLE JobLockName {};
// For annotations alone.
inline constexpr JobLockName job_lock;

// Taken by JobLock alone.
class JobMutex {
 private:
  friend class JobLock;
  Mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE JobLock {
 public:
  explicit JobLock(JobMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(job_lock) : lock_(&mutex->mutex_) {}
  ~JobLock() ABSL_UNLOCK_FUNCTION() {}
  JobLock(const JobLock&) = delete;
  JobLock& operator=(const JobLock&) = delete;

 private:
  MutexLock lock_;
};

}  // namespace penstock
