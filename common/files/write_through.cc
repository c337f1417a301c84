#include "common/files/write_through.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/files/errors.h"
#include "common/process/file_descriptor.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr int kReaderMs = 10'000;
constexpr int kPollMs = 20;
constexpr int kStalledMs = 60'000;
// What a pipe that is ready for writing takes without blocking (PIPE_BUF, pipe(7)).
constexpr size_t kChunk = 4096;

// A reader that went away is the error EPIPE, not the end of the process.
class NoBrokenPipeSignal {
 public:
  NoBrokenPipeSignal() {
    sigemptyset(&broken_pipe_);
    sigaddset(&broken_pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &broken_pipe_, &before_);
  }
  ~NoBrokenPipeSignal() {
    const timespec at_once = {};
    while (sigtimedwait(&broken_pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipeSignal(const NoBrokenPipeSignal&) = delete;
  NoBrokenPipeSignal& operator=(const NoBrokenPipeSignal&) = delete;

 private:
  sigset_t broken_pipe_;
  sigset_t before_;
};

// Without blocking, so that a FIFO that nobody reads (ENXIO) is not waited for without end.
absl::StatusOr<FileDescriptor> OpenForWriting(const std::string& path) {
  for (int waited = 0;; waited += kPollMs) {
    FileDescriptor file(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (file.get() >= 0) return file;
    if (errno != ENXIO && errno != EINTR) return FileError(path, "opening", errno);
    if (waited >= kReaderMs) break;
    poll(nullptr, 0, kPollMs);
  }
  return absl::DeadlineExceededError(absl::StrCat("opening '", path, "': nobody has come to read from it"));
}

absl::Status WaitUntilTaken(int descriptor, const std::string& path) {
  pollfd watched = {.fd = descriptor, .events = POLLOUT, .revents = 0};
  int ready = 0;
  do {
    ready = poll(&watched, 1, kStalledMs);
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return FileError(path, "writing", errno);
  if (ready == 0)
    return absl::DeadlineExceededError(
        absl::StrCat("writing '", path, "': its reader has taken nothing for a minute"));
  return absl::OkStatus();
}

absl::Status WriteChunks(int descriptor, absl::string_view contents, const std::string& path) {
  while (!contents.empty()) {
    const absl::string_view chunk = contents.substr(0, kChunk);
    const ssize_t written = write(descriptor, chunk.data(), chunk.size());
    if (written >= 0) {
      contents.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      PENSTOCK_RETURN_IF_ERROR(WaitUntilTaken(descriptor, path));
    } else if (errno != EINTR) {
      return FileError(path, "writing", errno);
    }
  }
  return absl::OkStatus();
}

}  // namespace

int StandardStreamOf(const struct stat& file) {
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat stream = {};
    if (fstat(descriptor, &stream) == 0 && stream.st_dev == file.st_dev && stream.st_ino == file.st_ino)
      return descriptor;
  }
  return -1;
}

absl::Status WriteThrough(const std::string& path, const struct stat& file, absl::string_view contents) {
  const NoBrokenPipeSignal guard;
  const int stream = StandardStreamOf(file);
  if (stream >= 0) {
    std::fflush(stdout);  // what was printed before comes before
    return WriteChunks(stream, contents, path);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const FileDescriptor opened, OpenForWriting(path));
  PENSTOCK_RETURN_IF_ERROR(WriteChunks(opened.get(), contents, path));
  // Pipes and most devices have nothing to flush, and say so.
  if (fsync(opened.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
    return FileError(path, "flushing", errno);
  return absl::OkStatus();
}

}  // namespace penstock
