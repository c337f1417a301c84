// The command line that runs a program on another host over ssh, so that it can be stopped from here.
//
//   ChildProcess::Start({.arguments = RemoteCommand({"ssh"}, "node-a", {"/opt/bin/penstock-worker",
//   "--rank=3"}),
//                        .signals_on_stdin = true, ...});
//
// ssh hands on no signals, and a program whose connection breaks goes on. So a small shell script runs beside
// the program there: each line of its stdin is the name of a signal for the program, and the end of its stdin
// (ssh here, or the connection, is gone) kills the program. stdout, stderr and the exit status come back.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace penstock::cli {

// One word of a command line for a POSIX shell.
std::string ShellWord(absl::string_view word);

// `ssh` is the program and flags of its own. It asks nobody for a password, and ends when the host has been
// silent for 15 s. `secret`: a variable of the program's environment whose value is the first line of stdin
// (ChildOptions::first_line), which no list of processes shows; empty: none.
std::vector<std::string> RemoteCommand(const std::vector<std::string>& ssh, const std::string& host,
                                       const std::vector<std::string>& command,
                                       const std::string& secret = "");

}  // namespace penstock::cli
