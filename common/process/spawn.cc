#include "common/process/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/process/file_descriptor.h"

namespace penstock {
namespace {

// All that the child needs between fork and exec, where nothing may be allocated.
struct Launch {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const char* working_directory;  // nullptr: stay
  int input;
  int output;
  int error;
  int failure_pipe;
  pid_t parent;
};

// Valid as long as `strings` is.
std::vector<char*> PointersTo(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

[[noreturn]] void FailInChild(const Launch& launch) {
  const int error = errno;
  // The pipe is empty, so this small write is whole; if it fails there is nobody to tell.
  [[maybe_unused]] const ssize_t written = write(launch.failure_pipe, &error, sizeof(error));
  _exit(127);
}

// A parent that blocks or handles signals would hand that on to its child.
void ResetSignals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGCHLD}) signal(number, SIG_DFL);
}

[[noreturn]] void RunChild(const Launch& launch) {
  setpgid(0, 0);
  ResetSignals();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have ended before the line above.
  if (getppid() != launch.parent) _exit(127);
  const int input = launch.input >= 0 ? launch.input : open("/dev/null", O_RDONLY);
  if (input < 0 || dup2(input, STDIN_FILENO) < 0) FailInChild(launch);
  if (input != STDIN_FILENO) close(input);
  if (launch.output >= 0 && dup2(launch.output, STDOUT_FILENO) < 0) FailInChild(launch);
  if (launch.error >= 0 && dup2(launch.error, STDERR_FILENO) < 0) FailInChild(launch);
  if (launch.working_directory != nullptr && chdir(launch.working_directory) != 0) FailInChild(launch);
  execve(launch.program, launch.arguments, launch.environment);
  FailInChild(launch);
}

// The errno that the child wrote before it gave up; 0 when exec closed the pipe.
int ReadFailure(int pipe) {
  int error = 0;
  ssize_t received;
  do {
    received = read(pipe, &error, sizeof(error));
  } while (received < 0 && errno == EINTR);
  return received == sizeof(error) ? error : 0;
}

}  // namespace

absl::Status SystemError(int error, const std::string& what) {
  const std::string message = absl::StrCat(what, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

absl::StatusOr<pid_t> Spawn(SpawnRequest request) {
  const std::string what = absl::StrCat("cannot start '", request.program, "'");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemError(errno, what);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  const std::vector<char*> arguments = PointersTo(request.arguments);
  const std::vector<char*> environment = PointersTo(request.environment);
  const char* folder = request.working_directory.empty() ? nullptr : request.working_directory.c_str();
  const Launch launch = {.program = request.program.c_str(),
                         .arguments = arguments.data(),
                         .environment = environment.data(),
                         .working_directory = folder,
                         .input = request.input,
                         .output = request.output,
                         .error = request.error,
                         .failure_pipe = writer.get(),
                         .parent = getpid()};
  const pid_t pid = fork();
  if (pid < 0) return SystemError(errno, what);
  if (pid == 0) RunChild(launch);
  writer.Close();
  if (const int error = ReadFailure(reader.get()); error != 0) {
    waitpid(pid, nullptr, 0);
    return SystemError(error, what);
  }
  return pid;
}

}  // namespace penstock
