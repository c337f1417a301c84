// What `penstock up` leaves when it is stopped, killed or out of room, and how it goes on from that.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "common/checkpoint/checkpoint_folder.h"
#include "tests/support/small_disk.h"
#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Room for some checkpoints.
constexpr size_t kDiskBytes = 200 << 20;

class NeverLostTest : public UpTest {
 protected:
  std::string Checkpoints() const { return RunDir() + "/checkpoints"; }

  // Iterations of the complete checkpoints, the newest first.
  std::vector<uint64_t> Complete() const { return CompleteCheckpoints(Checkpoints()); }

  // Nothing half written, nothing damaged.
  void ExpectNothingElse() const {
    for (const auto& entry : std::filesystem::directory_iterator(Checkpoints()))
      EXPECT_EQ(entry.path().extension(), "") << entry.path();
  }

  // A file of a checkpoint that is being written, which takes nothing: who writes it stands still.
  std::string Block(uint64_t next_iteration, const std::string& file) const {
    const std::string partial = PartialCheckpointPath(Checkpoints(), next_iteration);
    std::filesystem::create_directories(partial);
    const std::string path = partial + "/" + file;
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }

  void WaitForFiles(const std::vector<std::string>& files) const {
    const absl::Time deadline = absl::Now() + kRunDeadline;
    const auto is_there = [](const std::string& file) { return std::filesystem::exists(file); };
    while (!std::all_of(files.begin(), files.end(), is_there) && absl::Now() < deadline) {
      absl::SleepFor(kPoll);
    }
    EXPECT_TRUE(std::all_of(files.begin(), files.end(), is_there));
  }

  // A run that nothing happens to.
  nlohmann::json Undisturbed(const std::vector<std::string>& flags) {
    std::vector<std::string> all = flags;
    for (const std::string& flag : {std::string("--json"), std::string("--run-dir"), folder_.Path("whole")})
      all.push_back(flag);
    PenstockRun whole(folder_, "whole", UpArguments(all));
    EXPECT_EQ(whole.Wait(), 0) << whole.errors();
    undisturbed_ = ProgressOf(whole.errors());
    return nlohmann::json::parse(whole.output(), nullptr, /*allow_exceptions=*/false);
  }

  std::vector<std::string> undisturbed_;
};

// The names of the tensors of a safetensors file.
std::vector<std::string> TensorsOf(const std::string& contents) {
  uint64_t length = 0;
  std::memcpy(&length, contents.data(), sizeof(length));
  const auto header = nlohmann::json::parse(contents.substr(sizeof(length), length));
  std::vector<std::string> names;
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") names.push_back(name);
  }
  return names;
}

TEST_F(NeverLostTest, ARunEndsWithACheckpointThatHoldsEverythingOnce) {
  PenstockRun up(folder_, "up", UpArguments({"--iterations", "6", "--json"}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(Complete(), ElementsAre(6));
  ExpectNothingElse();
  const auto files = FilesOf(nlohmann::json::parse(up.output())["checkpoint"].get<std::string>());
  ASSERT_EQ(files.size(), 4u);
  std::set<std::string> names;
  for (const auto& [file, contents] : files) {
    for (const std::string& name : TensorsOf(contents))
      EXPECT_TRUE(names.insert(name).second) << name << " is in two files";
  }
  EXPECT_GT(names.size(), 40u);
  // The replicas of a stage divide it.
  for (const int position : {0, 1}) {
    const auto size = [&](int rank) {
      return static_cast<double>(files.at(absl::StrCat("rank-", rank, ".safetensors")).size());
    };
    EXPECT_LT(std::max(size(position), size(position + 2)), 4 * std::min(size(position), size(position + 2)));
  }
}

TEST_F(NeverLostTest, NoCheckpointIsWrittenWhereNoneIsWanted) {
  PenstockRun up(folder_, "up", UpArguments({"--iterations", "3", "--no-checkpoints", "--json"}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_TRUE(Complete().empty());
  PenstockRun both(folder_, "both", UpArguments({"--no-checkpoints", "--checkpoint-every", "2"}));
  EXPECT_EQ(both.Wait(), 2);
  EXPECT_THAT(both.errors(), HasSubstr("--no-checkpoints and --checkpoint-every"));
}

TEST_F(NeverLostTest, CtrlCWaitsForACheckpointFromWhichTheRunGoesOnByItself) {
  const std::vector<std::string> flags = {"--iterations", "60"};
  const nlohmann::json whole = Undisturbed(flags);
  PenstockRun first(folder_, "first", UpArguments(flags));
  first.WaitForText("iteration 5/59");
  first.process().Signal(SIGINT);
  EXPECT_EQ(first.Wait(), 1);
  EXPECT_THAT(first.errors() + first.output(), HasSubstr("stopping after this iteration, with a checkpoint"));
  EXPECT_THAT(first.errors(), HasSubstr("--resume --run-dir " + RunDir()));
  ASSERT_EQ(Complete().size(), 1u) << first.errors();
  const uint64_t stopped = Complete().front();
  EXPECT_GT(stopped, 5u);
  EXPECT_LT(stopped, 60u);
  ExpectNothingElse();
  EXPECT_TRUE(ProcessesOf(RunDir(), "").empty());

  // No flag but the folder.
  PenstockRun second(folder_, "second", {"up", "--resume", "--run-dir", RunDir(), "--json"});
  ASSERT_EQ(second.Wait(), 0) << second.errors();
  const auto progress = ProgressOf(second.errors());
  EXPECT_EQ(progress, std::vector<std::string>(undisturbed_.begin() + static_cast<ptrdiff_t>(stopped),
                                               undisturbed_.end()));
  const auto resumed = nlohmann::json::parse(second.output());
  EXPECT_EQ(resumed["last_loss"].get<double>(), whole["last_loss"].get<double>());
  EXPECT_TRUE(FilesOf(resumed["checkpoint"].get<std::string>()) ==
              FilesOf(whole["checkpoint"].get<std::string>()));
}

TEST_F(NeverLostTest, ASecondCtrlCEndsAtOnce) {
  PenstockRun up(folder_, "up", UpArguments({"--iterations", "100000", "--stop-seconds", "200"}));
  up.WaitForText("iteration 3/");
  const std::vector<pid_t> hung = ProcessesOf(RunDir(), "--rank=2");
  ASSERT_EQ(hung.size(), 1u);
  kill(hung.front(), SIGSTOP);
  up.process().Signal(SIGINT);
  up.WaitForText("stopping after this iteration");
  const absl::Time again = absl::Now();
  up.process().Signal(SIGINT);
  EXPECT_EQ(up.Wait(), 1);
  EXPECT_LT(absl::Now() - again, absl::Seconds(60));
  EXPECT_TRUE(ProcessesOf(RunDir(), "").empty());
}

TEST_F(NeverLostTest, ADamagedCheckpointFallsBackToTheOneBeforeAndSaysSo) {
  PenstockRun first(folder_, "first",
                    UpArguments({"--iterations", "20", "--checkpoint-every", "5", "--json"}));
  ASSERT_EQ(first.Wait(), 0) << first.errors();
  ASSERT_THAT(Complete(), ElementsAre(20, 15));
  const std::string part = PartPath(CheckpointPath(Checkpoints(), 20), 1);
  std::string contents = *ReadFile(part);
  contents.back() ^= 1;
  std::ofstream(part, std::ios::binary) << contents;

  PenstockRun second(folder_, "second", {"up", "--resume", "--run-dir", RunDir(), "--iterations", "21"});
  EXPECT_EQ(second.Wait(), 0) << second.errors();
  const std::string said = second.errors() + second.output();
  EXPECT_THAT(said,
              HasSubstr(CheckpointPath(Checkpoints(), 20) + " cannot be used: '" + part + "' is damaged"));
  EXPECT_THAT(said, HasSubstr("going on from the one before it, " + CheckpointPath(Checkpoints(), 15)));
  EXPECT_TRUE(std::filesystem::exists(CheckpointPath(Checkpoints(), 20) + ".damaged"));
  EXPECT_THAT(Complete(), ElementsAre(21, 20));
}

TEST_F(NeverLostTest, GoesOnWithWhatTheRunHadUnlessToldSo) {
  PenstockRun first(folder_, "first", UpArguments({"--iterations", "3"}));
  ASSERT_EQ(first.Wait(), 0) << first.errors();
  const std::string other = folder_.Path("other");
  PenstockRun import(folder_, "import-other",
                     {"dataset", "import", "--out", other, PENSTOCK_SOURCE_DIR "/README.md"});
  ASSERT_EQ(import.Wait(), 0) << import.errors();
  const std::vector<std::string> resume = {"up", "--resume", "--run-dir", RunDir(), "--iterations", "4"};
  // A flag, its value, what it was.
  const std::vector<std::vector<std::string>> others = {{"--lr", "0.5", "0.01"},
                                                        {"--global-batch", "8", "16"},
                                                        {"--clip-norm", "7", "1"},
                                                        {"--dataset", other, "another one"}};
  for (const auto& change : others) {
    std::vector<std::string> flags = resume;
    flags.insert(flags.end(), {change[0], change[1]});
    PenstockRun run(folder_, "refused" + change[0], flags);
    EXPECT_EQ(run.Wait(), 2) << change[0];
    EXPECT_THAT(run.errors(),
                HasSubstr(absl::StrCat(": the run in '", RunDir(), "' was started with ", change[2])));
    EXPECT_THAT(run.errors(), HasSubstr(change[0] + " "));
    EXPECT_THAT(run.errors(), HasSubstr("--allow-change " + change[0].substr(2)));
  }
  std::vector<std::string> shorter = resume;
  shorter.insert(shorter.end(), {"--max-length", "100", "--allow-change", "max-length"});
  PenstockRun positions(folder_, "positions", shorter);
  EXPECT_EQ(positions.Wait(), 2);
  EXPECT_THAT(positions.errors(), HasSubstr("was started with 256, and its model has as many positions"));
  std::vector<std::string> allowed = resume;
  allowed.insert(allowed.end(), {"--lr", "0.5", "--global-batch", "8", "--allow-change", "lr,global-batch"});
  PenstockRun run(folder_, "allowed", allowed);
  EXPECT_EQ(run.Wait(), 0) << run.errors();
  // It is what the run has from now on.
  PenstockRun later(folder_, "later", {"up", "--resume", "--run-dir", RunDir(), "--iterations", "5"});
  EXPECT_EQ(later.Wait(), 0) << later.errors();
}

TEST_F(NeverLostTest, AWorkerThatIsKilledAfterItsLastReportTakesNothingAway) {
  const std::vector<std::string> flags = {"--iterations", "40"};
  const nlohmann::json whole = Undisturbed(flags);
  std::vector<std::string> all = UpArguments(flags);
  all.emplace_back("--json");
  PenstockRun up(folder_, "up", all);
  up.WaitForText("iteration 0/");
  // Rank 0 comes as far as writing the manifest.
  const std::string manifest = Block(40, "manifest.json");
  up.WaitForText("iteration 39/39");
  const std::vector<pid_t> rank0 = ProcessesOf(RunDir(), "--rank=0");
  ASSERT_EQ(rank0.size(), 1u);
  kill(rank0.front(), SIGSTOP);
  EXPECT_TRUE(Complete().empty());
  std::filesystem::remove(manifest);
  kill(rank0.front(), SIGKILL);
  EXPECT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.errors(), HasSubstr("all parts are there, it is completed"));
  EXPECT_THAT(Complete(), ElementsAre(40));
  ExpectNothingElse();
  EXPECT_TRUE(FilesOf(CheckpointPath(Checkpoints(), 40)) == FilesOf(whole["checkpoint"].get<std::string>()));
}

TEST_F(NeverLostTest, AWorkerThatIsKilledWhileItWritesLosesTheCheckpointAndNothingElse) {
  // What the others hold would be the next checkpoint.
  const std::vector<std::string> flags = {"--iterations", "50", "--checkpoint-every", "25", "--no-rescue"};
  const nlohmann::json whole = Undisturbed(flags);
  std::vector<std::string> all = UpArguments(flags);
  all.emplace_back("--json");
  PenstockRun up(folder_, "up", all);
  up.WaitForText("iteration 0/");
  // Where it writes the part aside.
  Block(25, "rank-2.safetensors.partial");
  // Training goes on while it cannot write.
  up.WaitForText("iteration 28/");
  const std::string partial = PartialCheckpointPath(Checkpoints(), 25);
  WaitForFiles({RecordPath(partial, 0), RecordPath(partial, 1), RecordPath(partial, 3)});
  EXPECT_FALSE(std::filesystem::exists(RecordPath(partial, 2)));
  EXPECT_TRUE(Complete().empty());
  KillOne(RunDir(), "--rank=2");
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.errors(), HasSubstr("worker-2 killed by signal 9 (Killed): starting it again"));
  EXPECT_EQ(ProgressOf(up.errors()), undisturbed_);
  EXPECT_THAT(Complete(), ElementsAre(50, 25));
  ExpectNothingElse();
  EXPECT_TRUE(FilesOf(CheckpointPath(Checkpoints(), 50)) == FilesOf(whole["checkpoint"].get<std::string>()));
}

class FullDiskTest : public NeverLostTest {
 protected:
  void SetUp() override {
    NeverLostTest::SetUp();
    std::filesystem::create_directories(Checkpoints());
    auto disk = SmallDisk::Mount(Checkpoints(), kDiskBytes);
    if (!disk.ok()) GTEST_SKIP() << disk.status();
    disk_ = *std::move(disk);
  }

  std::unique_ptr<SmallDisk> disk_;
};

TEST_F(FullDiskTest, EndsTheRunWithItsReasonAndLeavesTheLastCheckpoint) {
  PenstockRun up(
      folder_, "up",
      UpArguments({"--iterations", "100000", "--checkpoint-every", "10", "--checkpoint-failures", "stop"}));
  up.WaitForText("iteration 22/");
  disk_->Fill();
  EXPECT_EQ(up.Wait(), 1);
  EXPECT_THAT(up.errors(), HasSubstr("the checkpoint after iteration "));
  EXPECT_THAT(up.errors(), HasSubstr("No space left on device"));
  EXPECT_TRUE(ProcessesOf(RunDir(), "").empty());
  ASSERT_FALSE(Complete().empty());
  for (const uint64_t iteration : Complete())
    EXPECT_TRUE(OpenCheckpoint(Checkpoints(), iteration, CheckpointDepth::kContents).ok()) << iteration;
}

TEST_F(FullDiskTest, GoesOnByItselfWhenThereIsRoomAgain) {
  PenstockRun up(folder_, "up",
                 UpArguments({"--iterations", "60", "--checkpoint-every", "10", "--checkpoint-failures",
                              "stop", "--json"}));
  up.WaitForText("iteration 12/");
  disk_->Fill();
  up.WaitForText("starting it again");
  disk_->MakeRoom();
  EXPECT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(Complete(), ElementsAre(60, 50));
  EXPECT_EQ(ProgressOf(up.errors()).size(), 60u);
}

TEST_F(FullDiskTest, DoesNotEndTrainingAndIsSaid) {
  PenstockRun up(folder_, "up", UpArguments({"--iterations", "150", "--checkpoint-every", "10", "--json"}));
  up.WaitForText("iteration 12/");
  disk_->Fill();
  up.WaitForText("was not written");
  EXPECT_THAT(up.errors(), HasSubstr("training goes on, the next one is tried. The newest one is"));
  disk_->MakeRoom();
  EXPECT_EQ(up.Wait(), 0) << up.errors();
  EXPECT_THAT(up.errors(), Not(HasSubstr("starting it again")));
  EXPECT_THAT(Complete(), ElementsAre(150, 140));
  EXPECT_EQ(ProgressOf(up.errors()).size(), 150u);
}

TEST_F(NeverLostTest, ALossThatIsNoNumberEndsTheRunBeforeItReachesACheckpoint) {
  PenstockRun up(folder_, "up",
                 UpArguments({"--iterations", "100000", "--lr", "1000", "--min-lr", "1000", "--weight-decay",
                              "1", "--clip-norm", "0", "--checkpoint-every", "1"}));
  EXPECT_EQ(up.Wait(), 1);
  EXPECT_THAT(up.errors(),
              testing::ContainsRegex("iteration [0-9]+: .* is not finite, which began at rank [0-3]: .*; no "
                                     "parameter was changed. Try a lower learning rate \\(--lr\\)"));
  EXPECT_THAT(up.errors(), HasSubstr("is not started again: it would end the same"));
  EXPECT_TRUE(ProcessesOf(RunDir(), "").empty());
  // What was written before can be read and has finite numbers only: going on from it fails the same way,
  // in the iteration that was not done.
  ASSERT_FALSE(Complete().empty()) << up.errors();
  const uint64_t last = Complete().front();
  PenstockRun again(folder_, "again", {"up", "--resume", "--run-dir", RunDir()});
  EXPECT_EQ(again.Wait(), 1);
  EXPECT_THAT(again.errors(), HasSubstr(absl::StrCat("iteration ", last, ": ")));
}

}  // namespace
}  // namespace penstock
