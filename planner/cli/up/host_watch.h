// Asks hosts that were lost, again and again, whether they are back.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/process/child_process.h"

namespace penstock::cli {

class HostWatch {
 public:
  // Between two questions to a host.
  static constexpr absl::Duration kPause = absl::Seconds(10);

  // `ssh`: the program and flags of its own.
  explicit HostWatch(std::vector<std::string> ssh) : ssh_(std::move(ssh)) {}

  void Watch(const std::string& host, absl::Time now);
  // Those that have answered; they are watched no longer. Does not block.
  std::set<std::string> Answered(absl::Time now);

 private:
  struct Question {
    absl::Time due;
    // It is being asked.
    std::unique_ptr<ChildProcess> ssh;
  };

  // True: it has answered.
  bool Ask(const std::string& host, Question& question, absl::Time now) const;

  const std::vector<std::string> ssh_;
  std::map<std::string, Question> questions_;
};

}  // namespace penstock::cli
