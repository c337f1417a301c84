#include "worker/comm/peer_proof.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "tests/support/status_matchers.h"

namespace penstock::worker {
namespace {

constexpr std::chrono::milliseconds kTimeout{2000};
constexpr std::chrono::milliseconds kShort{100};
constexpr std::chrono::milliseconds kLong{20'000};
// What each says to each: a challenge and a proof.
constexpr int kMessages = 2;

// Messages between positions of a group, by who sends them to whom.
class Mailbox {
 public:
  void Put(int from, int to, const at::Tensor& message) {
    MutexLock lock(&mutex_);
    messages_[{from, to}].push_back(message.clone());
    changed_.SignalAll();
  }

  // False: none came in time.
  bool Take(int from, int to, at::Tensor& message, std::chrono::milliseconds timeout) {
    const absl::Time deadline = absl::Now() + absl::FromChrono(timeout);
    MutexLock lock(&mutex_);
    std::deque<at::Tensor>& queue = messages_[{from, to}];
    while (queue.empty() && absl::Now() < deadline) changed_.WaitWithTimeout(&mutex_, deadline - absl::Now());
    if (queue.empty()) return false;
    message.copy_(queue.front());
    queue.pop_front();
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::pair<int, int>, std::deque<at::Tensor>> messages_ ABSL_GUARDED_BY(mutex_);
};

class SentWork : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
};

class ReceiveWork : public c10d::Work {
 public:
  ReceiveWork(Mailbox& mailbox, int from, int to, at::Tensor message)
      : mailbox_(mailbox), from_(from), to_(to), message_(std::move(message)) {}
  bool wait(std::chrono::milliseconds timeout) override {
    TORCH_CHECK_WITH(DistNetworkError, mailbox_.Take(from_, to_, message_, timeout), "timed out");
    return true;
  }

 private:
  Mailbox& mailbox_;
  const int from_;
  const int to_;
  at::Tensor message_;
};

class FakeBackend : public c10d::Backend {
 public:
  FakeBackend(Mailbox& mailbox, int position, int size) : Backend(position, size), mailbox_(mailbox) {}
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int) override {
    mailbox_.Put(getRank(), to, tensors.front());
    return c10::make_intrusive<SentWork>();
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int) override {
    return c10::make_intrusive<ReceiveWork>(mailbox_, from, getRank(), tensors.front());
  }

 private:
  Mailbox& mailbox_;
};

PeerProofOptions Options(uint32_t rank, const std::string& key,
                         std::chrono::milliseconds timeout = kTimeout) {
  return {.rank = rank, .key = key, .timeout = timeout};
}

// The outcome of each rank of the group, by position, with the key that it has.
std::vector<absl::Status> Prove(const RankGroup& group, const std::vector<std::string>& keys) {
  Mailbox mailbox;
  const int size = static_cast<int>(group.size());
  std::vector<absl::Status> outcomes(group.size());
  std::vector<std::thread> threads;
  for (int position = 0; position < size; ++position) {
    threads.emplace_back([&, position] {
      const auto index = static_cast<size_t>(position);
      FakeBackend backend(mailbox, position, size);
      outcomes[index] = ProvePeers(backend, group, Options(group[index], keys[index]));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

auto NamesStranger(uint32_t rank) {
  return Fails(absl::StatusCode::kUnavailable, absl::StrCat("who connected as rank ", rank));
}

TEST(PeerProofTest, WorkersOfOneEpochBelieveEachOther) {
  for (const absl::Status& outcome : Prove({1, 5, 7}, {"key", "key", "key"})) EXPECT_THAT(outcome, IsOk());
}

TEST(PeerProofTest, OneWithAnotherKeyIsNamedByAllOthersAndBelievesNobody) {
  const std::vector<absl::Status> outcomes = Prove({1, 5, 7}, {"key", "stranger", "key"});
  EXPECT_THAT(outcomes[0], NamesStranger(5));
  EXPECT_THAT(outcomes[2], NamesStranger(5));
  EXPECT_THAT(outcomes[1], NamesStranger(1));
}

TEST(PeerProofTest, AGroupOfOneHasNothingToProve) { EXPECT_THAT(Prove({3}, {"key"})[0], IsOk()); }

// A stranger who is connected as position 1 and does with each message of position 0 what `answer` says.
absl::Status ProveTo(const std::function<at::Tensor(const at::Tensor& message)>& answer) {
  Mailbox mailbox;
  std::thread stranger([&] {
    at::Tensor message = at::empty({32}, at::kByte);
    for (int sent = 0; sent < kMessages; ++sent) {
      if (mailbox.Take(0, 1, message, kLong)) mailbox.Put(1, 0, answer(message));
    }
  });
  FakeBackend backend(mailbox, 0, 2);
  const absl::Status outcome = ProvePeers(backend, {0, 1}, Options(0, "key"));
  stranger.join();
  return outcome;
}

TEST(PeerProofTest, SendingBackWhatItGetsHelpsAStrangerNothing) {
  EXPECT_THAT(ProveTo([](const at::Tensor& message) { return message; }), NamesStranger(1));
}

TEST(PeerProofTest, GarbageHelpsAStrangerNothing) {
  EXPECT_THAT(ProveTo([](const at::Tensor& message) { return at::zeros_like(message); }), NamesStranger(1));
}

TEST(PeerProofTest, AnAnswerOfAnEarlierMeetingHelpsAStrangerNothing) {
  // All that rank 1 said at a meeting of the same group with the same key.
  Mailbox earlier;
  std::vector<at::Tensor> said;
  std::thread rank1([&] {
    FakeBackend backend(earlier, 1, 2);
    EXPECT_THAT(ProvePeers(backend, {0, 1}, Options(1, "key")), IsOk());
  });
  // Listens in between: hands over what rank 1 says, and keeps it.
  class Recorder : public FakeBackend {
   public:
    Recorder(Mailbox& mailbox, std::vector<at::Tensor>& said) : FakeBackend(mailbox, 0, 2), said_(said) {}
    c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
      said_.push_back(tensors.front());
      return FakeBackend::recv(tensors, from, tag);
    }

   private:
    std::vector<at::Tensor>& said_;
  } recorder(earlier, said);
  EXPECT_THAT(ProvePeers(recorder, {0, 1}, Options(0, "key")), IsOk());
  rank1.join();
  ASSERT_EQ(said.size(), kMessages);

  size_t next = 0;
  EXPECT_THAT(ProveTo([&](const at::Tensor&) { return said[next++ % 2]; }), NamesStranger(1));
}

TEST(PeerProofTest, ASilentPeerIsGivenUpAfterTheTimeout) {
  Mailbox mailbox;
  FakeBackend backend(mailbox, 0, 2);
  EXPECT_THAT(ProvePeers(backend, {0, 1}, Options(0, "key", kShort)),
              Fails(absl::StatusCode::kUnavailable, "asking rank 1 to show"));
}

}  // namespace
}  // namespace penstock::worker
