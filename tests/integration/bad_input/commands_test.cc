// Every row of commands/ and files/: a command line, or a file, that makes no sense ends the real binary with
// the row's status and an error that names the row's flag, file, line or field.
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/process/child_process.h"
#include "penstock/v1/job.pb.h"
#include "tests/integration/bad_input/message_changes.h"
#include "tests/integration/bad_input/table.h"
#include "tests/integration/cli/penstock_process.h"

namespace penstock {
namespace {

// Words of a command line; quotes hold spaces, and C's escapes stand for their characters.
std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words;
  bool quoted = false;
  bool open = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
      if (!open) words.emplace_back();
      open = true;
    } else if (c == ' ' && !quoted) {
      open = false;
    } else {
      if (!open) words.emplace_back();
      open = true;
      words.back() += c;
    }
  }
  return words;
}

#ifdef PENSTOCK_HAS_WORKER
constexpr bool kHasWorker = true;
#else
constexpr bool kHasWorker = false;
#endif

// `up` looks for it before anything else.
bool NeedsWorker(const std::string& command) {
  return absl::StartsWith(command, "penstock-worker") || absl::StartsWith(command, "penstock up");
}

class BadCommands : public testing::Test {
 protected:
  void SetUp() override {
    profile_ = penstock_.WriteProfile();
    lengths_ = penstock_.WriteLengths(100);
    plan_ = penstock_.folder().Path("plan.json");
    dataset_ = penstock_.folder().Path("dataset");
    ASSERT_EQ(
        penstock_.Run(Words(Fill("plan --profile {profile} --lengths {lengths} --rows 0:8 --out {plan}")))
            .code,
        0);
    ASSERT_EQ(penstock_.Run(Words(Fill("dataset import {lengths} --format text --out {dataset}"))).code, 0);
  }

  // Names of valid files in place of {profile}, {lengths}, {plan}, {dataset} and {dir}; of a bad one for
  // {file}; a number of the row's own for {row}.
  std::string Fill(const std::string& text) const {
    return absl::StrReplaceAll(text, {{"{profile}", profile_},
                                      {"{lengths}", lengths_},
                                      {"{plan}", plan_},
                                      {"{dataset}", dataset_},
                                      {"{dir}", penstock_.folder().path()},
                                      {"{file}", file_},
                                      {"{row}", absl::StrCat(runs_.size())}});
  }

  // A row that runs.
  struct Started {
    Row row;
    std::string named;
    std::string output;
    std::unique_ptr<ChildProcess> process;
  };

  void Start(const Row& row, const std::string& command) {
    std::vector<std::string> arguments = Words(Fill(command));
    arguments[0] = absl::StrCat(PENSTOCK_BINARIES "/", arguments[0]);
    Started started{row, Fill(row.named), absl::StrCat(runs_.size()), nullptr};
    auto process = ChildProcess::Start({.arguments = arguments,
                                        .log_path = penstock_.folder().Path(started.output + ".err"),
                                        .output_path = penstock_.folder().Path(started.output + ".out")});
    ASSERT_TRUE(process.ok()) << process.status();
    started.process = *std::move(process);
    runs_.push_back(std::move(started));
    if (runs_.size() >= kAtOnce) ExpectEnd(runs_[runs_.size() - kAtOnce]);
  }

  void ExpectEnd(Started& started) {
    const auto end = started.process->WaitFor(absl::Seconds(30));
    const std::string errors = penstock_.folder().Read(started.output + ".err");
    const std::string where = absl::StrCat(started.row.place, ": ", started.row.change, "\n", errors);
    ++ended_;
    if (!end.has_value()) {
      ADD_FAILURE() << "still running: " << where;
      return;
    }
    EXPECT_EQ(end->ToString(), absl::StrCat("exited with status ", started.row.expected)) << where;
    EXPECT_TRUE(absl::StrContains(errors, started.named))
        << "does not name " << started.named << ": " << where;
  }

  void ExpectAllEnded() {
    const size_t first = runs_.size() < kAtOnce ? 0 : runs_.size() - kAtOnce + 1;
    for (size_t i = first; i < runs_.size(); ++i) ExpectEnd(runs_[i]);
    EXPECT_EQ(ended_, runs_.size());
  }

  // Writes the file of a row: its bytes, or the valid profile with its changes.
  void WriteFile(const Row& row, bool profile) {
    std::string contents;
    if (profile) {
      v1::ProfileFile message;
      ASSERT_TRUE(
          google::protobuf::util::JsonStringToMessage(penstock_.folder().Read("profile.json"), &message)
              .ok());
      const absl::Status changed = ApplyChanges(row.change, &message);
      ASSERT_TRUE(changed.ok()) << row.place << ": " << changed;
      ASSERT_TRUE(google::protobuf::util::MessageToJsonString(message, &contents).ok());
    } else {
      ASSERT_TRUE(absl::CUnescape(row.change, &contents)) << row.place;
    }
    file_ = penstock_.folder().Write(absl::StrCat("bad-", runs_.size()), contents);
  }

  static constexpr size_t kAtOnce = 2;

  Penstock penstock_;
  std::string profile_;
  std::string lengths_;
  std::string plan_;
  std::string dataset_;
  std::string file_;
  std::vector<Started> runs_;
  size_t ended_ = 0;
};

TEST_F(BadCommands, EndWithTheirStatusAndNameTheirFlag) {
  for (const Row& row : ReadTable(PENSTOCK_BAD_INPUT "/commands")) {
    if (NeedsWorker(row.section) && !kHasWorker) continue;
    ASSERT_NO_FATAL_FAILURE(Start(row, absl::StrCat(row.section, " ", row.change)));
  }
  ExpectAllEnded();
}

TEST_F(BadCommands, BadFilesAreNamedWithTheirLineOrField) {
  for (const Row& row : ReadTable(PENSTOCK_BAD_INPUT "/files")) {
    absl::string_view command = row.section;
    const bool profile = absl::ConsumePrefix(&command, "profile ");
    if (NeedsWorker(std::string(command)) && !kHasWorker) continue;
    ASSERT_NO_FATAL_FAILURE(WriteFile(row, profile));
    ASSERT_NO_FATAL_FAILURE(Start(row, std::string(command)));
  }
  ExpectAllEnded();
}

}  // namespace
}  // namespace penstock
