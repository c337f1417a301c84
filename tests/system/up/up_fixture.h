// `penstock up` as a user runs it, for system tests: real planner, real workers, real text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/process/child_process.h"
#include "tests/support/file_lock.h"
#include "tests/support/temporary_folder.h"

namespace penstock {

inline constexpr absl::Duration kRunDeadline = absl::Seconds(240);
inline constexpr absl::Duration kPoll = absl::Milliseconds(20);

// The repository's own text, byte by byte: with the 32,000 tokens of a real vocabulary nearly all that a tiny
// model computes is the head.
inline std::vector<std::string> RepositoryText() {
  const std::string source = PENSTOCK_SOURCE_DIR;
  return {absl::StrCat(source, "/docs"), absl::StrCat(source, "/proto"), absl::StrCat(source, "/common")};
}
inline constexpr const char* kBytes = "256";

// A running `penstock`, with its output in files.
class PenstockRun {
 public:
  PenstockRun(const TemporaryFolder& folder, const std::string& name, std::vector<std::string> arguments)
      : output_(folder.Path(name + ".out")), errors_(folder.Path(name + ".err")) {
    arguments.insert(arguments.begin(), PENSTOCK_BINARY);
    auto started = ChildProcess::Start({.arguments = std::move(arguments),
                                        // A cache of its own: no profile of another test or user.
                                        .environment = {{"PENSTOCK_CACHE", folder.Path("cache")}},
                                        .log_path = errors_,
                                        .output_path = output_});
    EXPECT_TRUE(started.ok()) << started.status();
    if (started.ok()) process_ = *std::move(started);
  }

  int Wait() {
    const std::optional<ExitStatus> ended = process_->WaitFor(kRunDeadline);
    EXPECT_TRUE(ended.has_value()) << "still running after " << kRunDeadline << "\n" << errors();
    return ended.has_value() ? ended->code : -1;
  }

  // Blocks until stdout or stderr holds the text.
  void WaitForText(const std::string& text) {
    const absl::Time deadline = absl::Now() + kRunDeadline;
    while (absl::Now() < deadline) {
      if (absl::StrContains(output() + errors(), text)) return;
      if (process_->WaitFor(kPoll).has_value()) break;
    }
    ASSERT_THAT(output() + errors(), testing::HasSubstr(text));
  }

  ChildProcess& process() { return *process_; }
  std::string output() const { return ReadFile(output_).value_or(""); }
  std::string errors() const { return ReadFile(errors_).value_or(""); }

 private:
  std::string output_;
  std::string errors_;
  std::unique_ptr<ChildProcess> process_;
};

class UpTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Import(RepositoryText(), Dataset()));
    ASSERT_NO_FATAL_FAILURE(TakeProfile(UpArguments({})));
  }

  void Import(const std::vector<std::string>& texts, const std::string& dataset) const {
    std::vector<std::string> arguments = {"dataset", "import", "--out", dataset};
    arguments.insert(arguments.end(), texts.begin(), texts.end());
    PenstockRun import(folder_, "import", arguments);
    ASSERT_EQ(import.Wait(), 0) << import.errors();
  }

  // Measuring the profile of a tiny model takes longer than training it: the first test of a build measures
  // that of such a run, and each has a copy in its own cache.
  void TakeProfile(std::vector<std::string> run) const {
    const std::filesystem::path measured = PENSTOCK_MEASURED_PROFILES;
    std::filesystem::create_directories(measured.parent_path());
    const FileLock one_measures(measured.string() + ".lock");
    if (!std::filesystem::exists(measured)) {
      run.insert(run.end(), {"--iterations", "1", "--run-dir", folder_.Path("measure")});
      PenstockRun up(folder_, "measure", run);
      ASSERT_EQ(up.Wait(), 0) << up.errors();
      std::filesystem::remove_all(measured.string() + ".partial");
      std::filesystem::copy(Profiles(), measured.string() + ".partial");
      std::filesystem::rename(measured.string() + ".partial", measured);
      return;
    }
    std::filesystem::create_directories(Profiles());
    std::filesystem::copy(measured, Profiles());
  }

  // The profile that was measured, of float64. For runs of which it does not matter what they cost: else the
  // first run on each mesh measures one, which takes longer than its training.
  nlohmann::json Float64Profile() const {
    const auto measured = std::filesystem::directory_iterator(Profiles());
    nlohmann::json profile = nlohmann::json::parse(ReadFile(measured->path()).value_or(""));
    profile["model"]["dtype"] = "DATA_TYPE_FLOAT64";
    profile["profile"]["bytes_per_element"] = 8;
    return profile;
  }

  std::string Profiles() const { return folder_.Path("cache/profiles"); }
  std::string Dataset() const { return folder_.Path("text"); }
  std::string RunDir() const { return folder_.Path("run"); }

  // 2 stages x 2 replicas of a tiny model. With fixed costs, so that two runs have the same plans and bits.
  std::vector<std::string> UpArguments(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        "up",      "--pp",      "2",      "--dp",           "2",  "--dataset",
        Dataset(), "--vocab",   kBytes,   "--hidden",       "32", "--heads",
        "2",       "--ffn",     "64",     "--layers",       "2",  "--max-length",
        "256",     "--lr",      "1e-2",   "--warmup",       "2",  "--profile-seconds",
        "1",       "--run-dir", RunDir(), "--global-batch", "16", "--fixed-costs"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  TemporaryFolder folder_;
};

// Runs in float64 that take the profile in the file `profile_`.
class Float64UpTest : public UpTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(UpTest::SetUp());
    profile_ = folder_.Write("profile.json", Float64Profile().dump());
  }

  std::string profile_;
};

// The pids of the processes of a run whose command line holds the text, by the run's folder, which it holds,
// too.
inline std::vector<pid_t> ProcessesOf(const std::string& run_dir, const std::string& text) {
  std::vector<pid_t> pids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    int pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    const std::string command = ReadFile(entry.path().string() + "/cmdline").value_or("");
    if (absl::StrContains(command, "/penstock-") && absl::StrContains(command, run_dir) &&
        absl::StrContains(command, text)) {
      pids.push_back(pid);
    }
  }
  return pids;
}

inline std::vector<pid_t> WorkersOf(const std::string& run_dir) {
  return ProcessesOf(run_dir, "penstock-worker");
}

inline void KillOne(const std::string& run_dir, const std::string& text) {
  const std::vector<pid_t> pids = ProcessesOf(run_dir, text);
  ASSERT_EQ(pids.size(), 1) << text;
  kill(pids.front(), SIGKILL);
}

// The tensors of a checkpoint by file: parameters and optimizer state of every rank.
inline std::map<std::string, std::string> FilesOf(const std::string& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().extension() != ".safetensors") continue;
    files[entry.path().filename()] = ReadFile(entry.path()).value_or("");
  }
  return files;
}

// "iteration 12/59  loss 4.213", of each line of progress.
inline std::vector<std::string> ProgressOf(const std::string& errors) {
  std::vector<std::string> progress;
  for (const absl::string_view line : absl::StrSplit(errors, '\n')) {
    const size_t loss = line.find("  loss ");
    if (absl::StartsWith(line, "iteration ") && loss != absl::string_view::npos) {
      progress.emplace_back(line.substr(0, line.find("  ", loss + 2)));
    }
  }
  return progress;
}

}  // namespace penstock
