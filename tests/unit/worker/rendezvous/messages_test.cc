#include "worker/rendezvous/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/status_matchers.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

std::string ContentOf(std::string message) { return message.substr(kLengthBytes); }

TEST(RendezvousMessages, ARequestArrivesAsItWasSent) {
  const auto request = DecodeRequest(ContentOf(EncodeMessage(TableRequest{.operation = TableOperation::kWait,
                                                                          .keys = {"a", "", "b\0c"},
                                                                          .value = std::string("\0\xFF", 2),
                                                                          .number = -5})));
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->operation, TableOperation::kWait);
  EXPECT_THAT(request->keys, ElementsAre("a", "", "b\0c"));
  EXPECT_EQ(request->value, std::string("\0\xFF", 2));
  EXPECT_EQ(request->number, -5);
}

TEST(RendezvousMessages, AnAnswerArrivesAsItWasSent) {
  const auto answer =
      DecodeAnswer(ContentOf(EncodeMessage(TableAnswer{.found = false, .number = 1LL << 60, .value = "v"})));
  ASSERT_THAT(answer, IsOk());
  EXPECT_FALSE(answer->found);
  EXPECT_EQ(answer->number, 1LL << 60);
  EXPECT_EQ(answer->value, "v");
}

TEST(RendezvousMessages, AreTakenAsTheyArriveByteByByte) {
  const std::string first = EncodeMessage(TableAnswer{.value = "first"});
  const std::string second = EncodeMessage(TableAnswer{.value = "second"});
  std::string received;
  std::vector<std::string> values;
  for (const char byte : first + second) {
    received.push_back(byte);
    const auto content = TakeMessage(received);
    ASSERT_THAT(content, IsOk());
    if (content->has_value()) values.push_back(DecodeAnswer(**content)->value);
  }
  EXPECT_THAT(values, ElementsAre("first", "second"));
  EXPECT_TRUE(received.empty());
}

TEST(RendezvousMessages, ALengthThatNobodyMeansIsRefusedBeforeAnythingIsKept) {
  std::string received = "\xFF\xFF\xFF\x7F";
  EXPECT_THAT(TakeMessage(received), Fails(absl::StatusCode::kInvalidArgument, "2147483647 bytes"));
}

TEST(RendezvousMessages, OperationsThatMakeNoSenseAreRefused) {
  TableRequest request{.operation = TableOperation::kSet, .keys = {"a", "b"}};
  EXPECT_THAT(DecodeRequest(ContentOf(EncodeMessage(request))),
              Fails(absl::StatusCode::kInvalidArgument, "with 2 keys"));
  std::string content = ContentOf(EncodeMessage(request));
  content[0] = 99;
  EXPECT_THAT(DecodeRequest(content), Fails(absl::StatusCode::kInvalidArgument, "no operation 99"));
}

TEST(RendezvousMessages, WhatIsCutOffOrChangedIsRefusedOrReadAndNeverMore) {
  std::mt19937 random(1);
  const std::string content =
      ContentOf(EncodeMessage(TableRequest{.operation = TableOperation::kCheck, .keys = {"one", "two"}}));
  for (size_t length = 0; length < content.size(); ++length)
    DecodeRequest(content.substr(0, length)).IgnoreError();
  for (int round = 0; round < 20'000; ++round) {
    std::string changed = content;
    for (int i = 0; i < 3; ++i) changed[random() % changed.size()] = static_cast<char>(random());
    const auto request = DecodeRequest(changed);
    if (!request.ok()) continue;
    size_t bytes = request->value.size();
    for (const std::string& key : request->keys) bytes += key.size();
    EXPECT_LE(bytes, changed.size());
  }
}

}  // namespace
}  // namespace penstock::worker
