// Waits until nobody else, in this process or another, holds the lock of a file, and holds it until its scope
// ends.
//
//   const FileLock lock(folder + "/lock");
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <string>

namespace penstock {

class FileLock {
 public:
  // Makes the file where it is not there.
  explicit FileLock(const std::string& path) : file_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    flock(file_, LOCK_EX);
  }
  ~FileLock() { close(file_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  const int file_;
};

}  // namespace penstock
