// A stranger on the workers' network while they meet: he reaches rank 0's table and the ports of all ranks,
// asks for what is there, crowds it, and connects as if he were a rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/secret/incarnation.h"
#include "tests/support/status_matchers.h"
#include "tests/system/harness/cluster.h"
#include "tests/system/harness/tiny_job.h"

namespace penstock::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kJob[] = "met";
constexpr uint64_t kIterations = 40;
constexpr size_t kBatch = 12;
constexpr absl::Duration kLook = absl::Milliseconds(20);

// Inodes of the sockets that the process has open.
std::vector<std::string> SocketsOf(pid_t pid) {
  std::vector<std::string> sockets;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (absl::StartsWith(target, "socket:[")) sockets.push_back(target.substr(8, target.size() - 9));
  }
  return sockets;
}

// On which the process listens, over IPv4.
std::vector<uint32_t> PortsOf(pid_t pid) {
  constexpr absl::string_view kListening = "0A";
  const std::vector<std::string> sockets = SocketsOf(pid);
  std::vector<uint32_t> ports;
  for (const absl::string_view line : absl::StrSplit(ReadFile("/proc/net/tcp").value_or(""), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 10 || words[3] != kListening) continue;
    if (std::ranges::find(sockets, words[9]) == sockets.end()) continue;
    uint32_t port = 0;
    if (absl::SimpleHexAtoi(words[1].substr(words[1].find(':') + 1), &port)) ports.push_back(port);
  }
  return ports;
}

class StrangersTest : public ::testing::Test {
 protected:
  static v1::JobSpec Job() { return TinyJobOnFourRanks(kJob, kIterations); }

  void Prepare(Cluster& cluster) {
    const std::string dataset = cluster.folder().Path("data");
    WriteTinyDataset(dataset, samples_);
    cluster.StartPlanner();
    cluster.Register(Job());
    cluster.Submit(kJob, TinyBatches(samples_, kBatch, 16));
  }

  // Ranks whose incarnations the test knows, as who starts them.
  WorkerSettings Settings(const Cluster& cluster) const {
    WorkerSettings settings = {.dataset = cluster.folder().Path("data")};
    for (int rank = 0; rank < 4; ++rank)
      settings.places.push_back(
          {.launcher = {"env", absl::StrCat(kIncarnationKeyVariable, "=", KeyOf(rank))}});
    return settings;
  }
  static std::string KeyOf(uint32_t rank) { return absl::StrCat("key of rank ", rank); }

  std::vector<Figures> Undisturbed() {
    Cluster cluster;
    Prepare(cluster);
    cluster.StartWorkers(Job(), Settings(cluster));
    SubmitTheRest(cluster);
    cluster.ExpectAllFinish();
    return cluster.FiguresOf(kJob);
  }

  void SubmitTheRest(Cluster& cluster) { cluster.Submit(kJob, TinyBatches(samples_, kBatch, kIterations)); }

  // The hostile client at work on all ports of all workers.
  std::unique_ptr<ChildProcess> StartStranger(const Cluster& cluster) {
    FollowPorts(cluster);
    auto started = ChildProcess::Start(
        {.arguments = {PENSTOCK_HOSTILE_CLIENT, "--targets", targets_path(cluster), "--share=0.5",
                       "--only=table_proofs", "--only=table_crowds", "--only=gloo_numbers"},
         .log_path = cluster.folder().Path("stranger.log"),
         .output_path = cluster.folder().Path("stranger.json")});
    EXPECT_THAT(started, IsOk());
    return started.ok() ? *std::move(started) : nullptr;
  }

  static std::string targets_path(const Cluster& cluster) { return cluster.folder().Path("targets"); }

  static void WriteTargets(const Cluster& cluster, const std::vector<uint32_t>& ports) {
    std::string lines;
    for (const uint32_t port : ports) absl::StrAppend(&lines, "worker 127.0.0.1 ", port, "\n");
    const absl::Status written = WriteFileAtomically(targets_path(cluster), lines);
    EXPECT_TRUE(written.ok()) << written;
  }

  void FollowPorts(const Cluster& cluster) const {
    std::vector<uint32_t> ports;
    for (const auto& worker : workers_) {
      const std::vector<uint32_t> some = PortsOf(worker->pid());
      ports.insert(ports.end(), some.begin(), some.end());
    }
    WriteTargets(cluster, ports);
  }

  void StartRank(Cluster& cluster, uint32_t rank) {
    workers_.push_back(cluster.StartWorker(Job(), rank, Settings(cluster),
                                           cluster.folder().Path(absl::StrCat("rank-", rank, ".log"))));
    ASSERT_NE(workers_.back(), nullptr);
  }

  void AwaitPortOfRankZero() const {
    const absl::Time end = absl::Now() + Cluster::kDeadline;
    while (PortsOf(workers_.front()->pid()).empty()) {
      ASSERT_LT(absl::Now(), end);
      ASSERT_FALSE(workers_.front()->WaitFor(kLook).has_value());
    }
  }

  // Of all ranks: where he was quicker than one of them at a port of Gloo's.
  static size_t MeetingsAgain(const Cluster& cluster) {
    size_t count = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const std::string log = cluster.folder().Read(absl::StrCat("rank-", rank, ".log"));
      const std::vector<std::string> parts = absl::StrSplit(log, "a group of ranks meets again");
      count += parts.size() - 1;
    }
    return count;
  }

  static v1::WorkerStatus FirstWorker(Cluster& cluster) {
    v1::GetJobRequest get;
    get.set_job_id(kJob);
    const auto job = cluster.client().GetJob(get);
    EXPECT_THAT(job, IsOk());
    return job.ok() && !job->status().workers().empty() ? job->status().workers(0) : v1::WorkerStatus();
  }

  static absl::StatusOr<v1::RegisterWorkerResponse> RegisterAgain(Cluster& cluster, uint32_t rank,
                                                                  uint64_t incarnation) {
    v1::RegisterWorkerRequest request;
    request.set_job_id(kJob);
    request.set_incarnation(incarnation);
    request.set_host("127.0.0.1");
    request.set_rank(static_cast<int32_t>(rank));
    return cluster.client().RegisterWorker(request);
  }

  // What a worker of the epoch is told, and nobody by what readers see of it.
  static std::string SecretOf(Cluster& cluster) {
    const v1::WorkerStatus worker = FirstWorker(cluster);
    EXPECT_FALSE(RegisterAgain(cluster, worker.rank(), worker.incarnation()).ok());
    const uint64_t incarnation = IncarnationOf(KeyOf(worker.rank()), 0);
    EXPECT_EQ(worker.incarnation(), IncarnationDigest(incarnation));
    const auto answer = RegisterAgain(cluster, worker.rank(), incarnation);
    EXPECT_THAT(answer, IsOk());
    return answer.ok() ? answer->epoch_secret() : "";
  }

  static void ExpectUnspoken(const Cluster& cluster, const std::string& secret) {
    ASSERT_EQ(secret.size(), 32);
    for (const auto& entry : std::filesystem::directory_iterator(cluster.folder().path())) {
      if (entry.path().extension() != ".log" && entry.path().extension() != ".json") continue;
      const std::string text = ReadFile(entry.path()).value_or("");
      for (const std::string& form :
           {secret, absl::BytesToHexString(secret), absl::Base64Escape(secret), absl::CEscape(secret)})
        EXPECT_THAT(text, Not(HasSubstr(form))) << entry.path();
    }
  }

  const std::vector<TinySample> samples_ = TinySamples(36);
  std::vector<std::unique_ptr<ChildProcess>> workers_;
};

TEST_F(StrangersTest, OneAtTheRendezvousHasRanksMeetInTheFirstEpochAllTheSame) {
  const std::vector<Figures> undisturbed = Undisturbed();
  ASSERT_EQ(undisturbed.size(), kIterations);

  Cluster cluster;
  Prepare(cluster);
  // Rank 0 alone: its table is there, and the stranger at it, when the others come.
  StartRank(cluster, 0);
  AwaitPortOfRankZero();
  const std::unique_ptr<ChildProcess> stranger = StartStranger(cluster);
  ASSERT_NE(stranger, nullptr);
  for (uint32_t rank = 1; rank < 4; ++rank) StartRank(cluster, rank);
  // He goes on until they train.
  const absl::Time end = absl::Now() + Cluster::kDeadline;
  while (cluster.Completed(kJob) == 0) {
    ASSERT_LT(absl::Now(), end) << cluster.folder().Read("planner.log");
    FollowPorts(cluster);
    ASSERT_FALSE(stranger->WaitFor(kLook).has_value()) << cluster.folder().Read("stranger.log");
  }
  EXPECT_EQ(cluster.Epoch(kJob), 1) << cluster.folder().Read("planner.log");
  const std::string secret = SecretOf(cluster);
  SubmitTheRest(cluster);
  for (const auto& worker : workers_) {
    const std::optional<ExitStatus> ended = worker->WaitFor(Cluster::kDeadline);
    ASSERT_TRUE(ended.has_value());
    EXPECT_TRUE(ended->ok()) << ended->ToString();
  }
  ASSERT_TRUE(stranger->Stop(absl::Seconds(30)).ok());
  const std::string told = cluster.folder().Read("stranger.json");
  EXPECT_THAT(told, HasSubstr("\"table_challenges\""));
  EXPECT_THAT(told, HasSubstr("\"table_answered\": 0"));
  RecordProperty("stranger", told);
  RecordProperty("groups_that_met_again", std::to_string(MeetingsAgain(cluster)));
  EXPECT_EQ(cluster.Epoch(kJob), 1);
  EXPECT_EQ(cluster.FiguresOf(kJob), undisturbed);
  ExpectUnspoken(cluster, secret);
}

}  // namespace
}  // namespace penstock::testing
