// Child processes with deadlines: start one with its output in a file, wait for it, stop it.
//
// A child ends with its parent, whatever the parent's end (Linux: PR_SET_PDEATHSIG), reads nothing from the
// terminal and is not hit by the terminal's Ctrl-C: its parent decides. Waiting is always bounded.
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> worker,
//                             ChildProcess::Start({.arguments = {"bin/penstock-worker", "--rank", "0"},
//                                                  .log_path = "logs/rank-0.log"}));
//   std::optional<ExitStatus> ended = worker->WaitFor(absl::Seconds(30));   // nullopt: still running
//   ExitStatus status = worker->Stop(absl::Seconds(5));                     // SIGTERM, later SIGKILL
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/process/file_descriptor.h"

namespace penstock {

// How a process ended: by `exit` with a code, or by a signal.
struct ExitStatus {
  // 0..255; -1 when a signal ended it.
  int code = -1;
  // 0 when it exited.
  int signal = 0;

  bool ok() const { return code == 0; }
  // "exited with status 1", "killed by signal 9 (Killed)".
  std::string ToString() const;
};

struct ChildOptions {
  // The program and its arguments. A program without '/' is looked for in PATH.
  std::vector<std::string> arguments = {};
  // Added to the parent's environment, or replacing what it has.
  std::vector<std::pair<std::string, std::string>> environment = {};
  // Where stdout and stderr go (created, appended to). Empty: where the parent's go.
  std::string log_path = {};
  // Where stdout alone goes instead; stderr stays with log_path. Empty: with stderr.
  std::string output_path = {};
  // Empty: the parent's.
  std::string working_directory = {};
  // For a program that starts another one where signals do not get to (ssh): its stdin is open for as long as
  // it runs, and Signal writes a line with the signal's name ("TERM") there. SIGKILL is sent to the program
  // as ever, whose end is seen by this object and closes its stdin, for what it has started, too.
  bool signals_on_stdin = false;
  // With signals_on_stdin, the first line there, without its end: what a command line would show to
  // everybody.
  std::string first_line = {};
};

// Not thread-safe. The thread that calls Start must live as long as the child: Linux sends the parent-death
// signal when that *thread* ends.
class ChildProcess {
 public:
  // Possible errors: INVALID_ARGUMENT (no program), NOT_FOUND (the program or a folder does not exist),
  // PERMISSION_DENIED, UNAVAILABLE (the system has no process or file descriptor left).
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);

  // Kills the child (SIGKILL) when it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }

  // Its end, when it has ended; does not block.
  std::optional<ExitStatus> Poll() { return WaitFor(absl::ZeroDuration()); }
  // Blocks until the child ends or the time is over (nullopt).
  std::optional<ExitStatus> WaitFor(absl::Duration timeout);

  // For poll(2): becomes readable when the child ends. -1 once its end is known. Of the child's alone.
  int end_descriptor() const { return ended_.has_value() ? -1 : pidfd_.get(); }

  // Sends a signal. A child that has ended is left alone.
  void Signal(int signal);
  // SIGTERM, then SIGKILL when `grace` is over. Blocks until the child has ended.
  ExitStatus Stop(absl::Duration grace);

 private:
  friend std::optional<size_t> WaitForAny(std::span<ChildProcess* const> children, absl::Duration timeout);

  ChildProcess(pid_t pid, FileDescriptor pidfd, FileDescriptor input)
      : pid_(pid), pidfd_(std::move(pidfd)), input_(std::move(input)) {}
  ExitStatus Reap();

  const pid_t pid_;
  // Becomes readable when the child has ended.
  const FileDescriptor pidfd_;
  // The other end of the child's stdin, where signals are written; -1: they are sent.
  const FileDescriptor input_;
  std::optional<ExitStatus> ended_;
};

// The index of a child that has ended; nullopt when none has within the time. Blocks. `children` may be
// empty.
std::optional<size_t> WaitForAny(std::span<ChildProcess* const> children, absl::Duration timeout);

// SIGTERM to all, then SIGKILL to those that still run when `grace` is over. Blocks until all have ended.
void StopAll(std::span<ChildProcess* const> children, absl::Duration grace);

}  // namespace penstock
