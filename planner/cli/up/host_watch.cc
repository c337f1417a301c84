#include "planner/cli/up/host_watch.h"

#include <optional>
#include <utility>

#include "planner/cli/up/remote_command.h"

namespace penstock::cli {

void HostWatch::Watch(const std::string& host, absl::Time now) { questions_[host].due = now + kPause; }

bool HostWatch::Ask(const std::string& host, Question& question, absl::Time now) const {
  if (question.ssh != nullptr) {
    const std::optional<ExitStatus> ended = question.ssh->Poll();
    if (!ended.has_value()) return false;
    question.ssh.reset();
    question.due = now + kPause;
    return ended->ok();
  }
  if (now < question.due) return false;
  auto started = ChildProcess::Start({.arguments = RemoteCommand(ssh_, host, {"true"}),
                                      .environment = {},
                                      .log_path = "/dev/null",
                                      .signals_on_stdin = true});
  question.due = now + kPause;
  if (started.ok()) question.ssh = *std::move(started);
  return false;
}

std::set<std::string> HostWatch::Answered(absl::Time now) {
  std::set<std::string> answered;
  for (auto& [host, question] : questions_) {
    if (Ask(host, question, now)) answered.insert(host);
  }
  for (const std::string& host : answered) questions_.erase(host);
  return answered;
}

}  // namespace penstock::cli
