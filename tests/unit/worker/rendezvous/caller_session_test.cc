#include "worker/rendezvous/caller_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace penstock::worker {
namespace {

const std::string kKey(32, 'k');
const std::string kChallenge(kChallengeBytes, 't');
const std::string kCallersChallenge(kChallengeBytes, 'c');
const Challenges kChallenges = {.of_table = kChallenge, .of_caller = kCallersChallenge};

std::string Hello(const std::string& key = kKey) { return kCallersChallenge + CallerProof(key, kChallenges); }

auto IsRefused() { return Fails(absl::StatusCode::kUnauthenticated, "no worker of this epoch"); }

TEST(CallerSession, TellsAStrangerNothingButAChallenge) {
  CallerSession session(kKey, kChallenge);
  EXPECT_EQ(session.outgoing(), kChallenge);
  EXPECT_THAT(session.Take(std::string(63, 'x')), IsOk());
  EXPECT_THAT(session.Take("x"), IsRefused());
  EXPECT_FALSE(session.proven());
  EXPECT_EQ(session.outgoing(), kChallenge);
}

TEST(CallerSession, RefusesAProofOfAnotherSecretOrConnection) {
  EXPECT_THAT(CallerSession(kKey, kChallenge).Take(Hello(std::string(32, 'o'))), IsRefused());
  EXPECT_THAT(CallerSession(kKey, std::string(kChallengeBytes, 'n')).Take(Hello()), IsRefused());
}

TEST(CallerSession, RefusesItsOwnProofSentBack) {
  EXPECT_THAT(CallerSession(kKey, kChallenge).Take(kCallersChallenge + TableProof(kKey, kChallenges)),
              IsRefused());
}

TEST(CallerSession, ShowsThatItHasTheSecretOnlyToWhoHasIt) {
  CallerSession session(kKey, kChallenge);
  EXPECT_THAT(session.Take(Hello()), IsOk());
  EXPECT_TRUE(session.proven());
  EXPECT_EQ(session.outgoing(), kChallenge + TableProof(kKey, kChallenges));
}

TEST(CallerSession, TakesRequestsAfterTheProofHoweverTheyAreCut) {
  const std::string bytes = Hello() +
                            EncodeMessage(TableRequest{.operation = TableOperation::kGet, .keys = {"a"}}) +
                            EncodeMessage(TableRequest{.operation = TableOperation::kGet, .keys = {"b"}});
  for (const size_t piece : {size_t{1}, size_t{7}, bytes.size()}) {
    CallerSession session(kKey, kChallenge);
    std::string keys;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      const auto requests = session.Take(absl::string_view(bytes).substr(at, piece));
      ASSERT_THAT(requests, IsOk());
      for (const TableRequest& request : *requests) keys += request.keys.front();
    }
    EXPECT_EQ(keys, "ab") << piece;
  }
}

TEST(CallerSession, EndsWithAMessageThatIsNone) {
  CallerSession session(kKey, kChallenge);
  EXPECT_THAT(session.Take(Hello()), IsOk());
  EXPECT_THAT(session.Take("\xFF\xFF\xFF\xFF"), Fails(absl::StatusCode::kInvalidArgument, "at most"));
}

}  // namespace
}  // namespace penstock::worker
