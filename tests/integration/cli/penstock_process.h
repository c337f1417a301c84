// Runs the real `penstock` on files of the test.
//
//   Penstock penstock;
//   const Ended ended = penstock.Run({"verify", penstock.folder().Path("plan.json")});
//   EXPECT_EQ(ended.code, 0) << ended.errors;
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/process/sanitized.h"
#include "tests/support/temporary_folder.h"

namespace penstock {

struct Ended {
  // Exit code; -1 when a signal or the time limit ended it.
  int code = -1;
  std::string output;
  std::string errors;
};

class Penstock {
 public:
  // Blocks until it ends, at most for `limit`.
  Ended Run(const std::vector<std::string>& arguments,
            absl::Duration limit = absl::Seconds(kSanitized ? 120 : 30));

  const TemporaryFolder& folder() const { return folder_; }

  // Writes a cost profile of a small GPT of 4 layers and returns its path; with figures of layers without
  // experts on request.
  std::string WriteProfile(bool dense_layers = false) const;
  // Writes lengths of `samples` samples, the i-th of (i % 5) * 8 input and 4 + i % 7 target tokens.
  std::string WriteLengths(int samples) const;
  // "plan" or "compare" with profile, lengths and rows 0:24.
  std::vector<std::string> PlanningCommand(const std::string& command,
                                           const std::vector<std::string>& more) const;

 private:
  TemporaryFolder folder_;
  int runs_ = 0;
};

}  // namespace penstock
