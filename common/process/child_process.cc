#include "common/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/spawn.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

absl::StatusOr<FileDescriptor> OpenForAppending(const std::string& path) {
  if (path.empty()) return FileDescriptor();
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file.get() < 0) return SystemError(errno, absl::StrCat("cannot write '", path, "'"));
  return file;
}

// The ends of a child's stdin.
struct Input {
  FileDescriptor child;
  FileDescriptor parent;
};

// A pair of sockets: to write where nobody reads any more is an error there, and no signal.
absl::StatusOr<Input> OpenInput(bool wanted) {
  if (!wanted) return Input();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return SystemError(errno, "cannot make the stdin of a child process");
  return Input{.child = FileDescriptor(ends[0]), .parent = FileDescriptor(ends[1])};
}

// To the stdin of a child. What is full or closed belongs to a child that is as good as dead, which whoever
// waits for it notices.
void WriteLine(const FileDescriptor& input, absl::string_view text) {
  const std::string line = absl::StrCat(text, "\n");
  [[maybe_unused]] const ssize_t sent =
      send(input.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

absl::StatusOr<std::string> FindProgram(const std::string& program) {
  if (absl::StrContains(program, '/')) return program;
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty())) {
    std::string candidate = absl::StrCat(folder, "/", program);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("cannot start '", program, "': it is not in PATH"));
}

std::vector<std::string> MergedEnvironment(const std::vector<std::pair<std::string, std::string>>& added) {
  std::map<std::string, std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> variable = absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    merged.insert(variable);
  }
  for (const auto& [name, value] : added) merged[name] = value;
  std::vector<std::string> result;
  result.reserve(merged.size());
  for (const auto& [name, value] : merged) result.push_back(absl::StrCat(name, "=", value));
  return result;
}

using SteadyClock = std::chrono::steady_clock;

// poll(2), until the deadline whatever signals arrive. The number of descriptors that are ready.
int PollUntil(std::vector<pollfd>& watched, SteadyClock::time_point deadline) {
  constexpr std::chrono::milliseconds kLongest{3'600'000};
  for (;;) {
    const auto remaining = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    const auto wait = std::clamp(remaining, std::chrono::milliseconds::zero(), kLongest);
    const int ready = poll(watched.data(), watched.size(), static_cast<int>(wait.count()));
    if (ready > 0) return ready;
    if (SteadyClock::now() >= deadline) return 0;
  }
}

// A day stands for "for ever", so that adding it to the clock does not overflow.
SteadyClock::time_point DeadlineAfter(absl::Duration timeout) {
  return SteadyClock::now() + absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24)));
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (signal != 0) return absl::StrCat("killed by signal ", signal, " (", strsignal(signal), ")");
  return absl::StrCat("exited with status ", code);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ChildOptions& options) {
  if (options.arguments.empty()) {
    return absl::InvalidArgumentError("ChildOptions.arguments is empty: name the program to start");
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::string program, FindProgram(options.arguments.front()));
  PENSTOCK_ASSIGN_OR_RETURN(const FileDescriptor log, OpenForAppending(options.log_path));
  PENSTOCK_ASSIGN_OR_RETURN(const FileDescriptor output, OpenForAppending(options.output_path));
  PENSTOCK_ASSIGN_OR_RETURN(Input input, OpenInput(options.signals_on_stdin));
  PENSTOCK_ASSIGN_OR_RETURN(const pid_t pid, Spawn({.program = std::move(program),
                                                    .arguments = options.arguments,
                                                    .environment = MergedEnvironment(options.environment),
                                                    .working_directory = options.working_directory,
                                                    .input = input.child.get(),
                                                    .output = output.get() >= 0 ? output.get() : log.get(),
                                                    .error = log.get()}));
  if (!options.first_line.empty()) WriteLine(input.parent, options.first_line);
  FileDescriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd.get() < 0) {
    const absl::Status error = SystemError(errno, "cannot watch a child process (pidfd_open, Linux 5.3)");
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return error;
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, std::move(pidfd), std::move(input.parent)));
}

ChildProcess::~ChildProcess() { Stop(absl::ZeroDuration()); }

std::optional<ExitStatus> ChildProcess::WaitFor(absl::Duration timeout) {
  if (ended_.has_value()) return ended_;
  ChildProcess* self = this;
  if (!WaitForAny({&self, 1}, timeout).has_value()) return std::nullopt;
  return Reap();
}

ExitStatus ChildProcess::Reap() {
  int raw = 0;
  while (waitpid(pid_, &raw, 0) < 0 && errno == EINTR) {
  }
  ExitStatus status;
  if (WIFEXITED(raw)) status.code = WEXITSTATUS(raw);
  if (WIFSIGNALED(raw)) status.signal = WTERMSIG(raw);
  ended_ = status;
  // Whoever has the child's stdin still, what it has started, finds its end.
  if (input_.get() >= 0) shutdown(input_.get(), SHUT_RDWR);
  return status;
}

void ChildProcess::Signal(int signal) {
  if (ended_.has_value()) return;
  if (input_.get() < 0 || signal == SIGKILL) {
    kill(pid_, signal);
    return;
  }
  WriteLine(input_, sigabbrev_np(signal));
}

ExitStatus ChildProcess::Stop(absl::Duration grace) {
  if (ended_.has_value()) return *ended_;
  if (grace > absl::ZeroDuration()) {
    Signal(SIGTERM);
    if (const std::optional<ExitStatus> ended = WaitFor(grace)) return *ended;
  }
  Signal(SIGKILL);
  return Reap();
}

std::optional<size_t> WaitForAny(std::span<ChildProcess* const> children, absl::Duration timeout) {
  std::vector<pollfd> watched;
  for (size_t i = 0; i < children.size(); ++i) {
    if (children[i]->ended_.has_value()) return i;
    watched.push_back({.fd = children[i]->pidfd_.get(), .events = POLLIN, .revents = 0});
  }
  if (PollUntil(watched, DeadlineAfter(timeout)) == 0) return std::nullopt;
  const auto ready = std::ranges::find_if(watched, [](const pollfd& entry) { return entry.revents != 0; });
  return static_cast<size_t>(ready - watched.begin());
}

void StopAll(std::span<ChildProcess* const> children, absl::Duration grace) {
  for (ChildProcess* child : children) child->Signal(SIGTERM);
  const SteadyClock::time_point deadline = DeadlineAfter(grace);
  for (ChildProcess* child : children) {
    const absl::Duration remaining = absl::FromChrono(deadline - SteadyClock::now());
    if (!child->WaitFor(std::max(remaining, absl::ZeroDuration())).has_value()) {
      child->Stop(absl::ZeroDuration());
    }
  }
}

}  // namespace penstock
