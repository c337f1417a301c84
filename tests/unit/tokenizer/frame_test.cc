#include "common/tokenizer/frame.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "common/process/file_descriptor.h"

namespace penstock {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    left = FileDescriptor(ends[0]);
    right = FileDescriptor(ends[1]);
  }

  FileDescriptor left;
  FileDescriptor right;
};

TEST(Frame, ArrivesAsItWasSent) {
  const Pair pair;
  // More than a socket holds.
  const std::string payload(1 << 22, 'x');
  std::thread sender([&] {
    EXPECT_TRUE(WriteFrame(pair.left.get(), {FrameKind::kEncode, payload}, absl::InfiniteFuture()).ok());
    EXPECT_TRUE(WriteFrame(pair.left.get(), {FrameKind::kDone, ""}, absl::InfiniteFuture()).ok());
  });
  const absl::StatusOr<Frame> first = ReadFrame(pair.right.get(), absl::InfiniteFuture());
  const absl::StatusOr<Frame> second = ReadFrame(pair.right.get(), absl::InfiniteFuture());
  sender.join();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(first->kind, FrameKind::kEncode);
  EXPECT_TRUE(first->payload == payload);
  EXPECT_EQ(second->kind, FrameKind::kDone);
  EXPECT_EQ(second->payload, "");
}

TEST(Frame, HoldsOthers) {
  const std::vector<Frame> frames = {
      {FrameKind::kEncode, "To be"}, {FrameKind::kDone, ""}, {FrameKind::kRefused, "x"}};
  const std::string payload = PackFrames(frames);
  const absl::StatusOr<std::vector<Frame>> unpacked = UnpackFrames(payload);
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  ASSERT_EQ(unpacked->size(), frames.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    EXPECT_EQ((*unpacked)[i].kind, frames[i].kind);
    EXPECT_EQ((*unpacked)[i].payload, frames[i].payload);
  }
  EXPECT_TRUE(UnpackFrames("")->empty());
  for (const std::string& none :
       {payload.substr(0, 3), payload.substr(0, payload.size() - 1), std::string("HTTP/1.1")})
    EXPECT_EQ(UnpackFrames(none).status().code(), absl::StatusCode::kDataLoss) << none;
}

TEST(Frame, KeepsTokens) {
  const std::vector<int32_t> tokens = {0, 1, -1, 1 << 30};
  EXPECT_EQ(TokensOfPayload(TokensToPayload(tokens)), tokens);
  EXPECT_TRUE(TokensOfPayload("").empty());
}

TEST(Frame, SaysThatTheOtherSideHasGone) {
  Pair pair;
  pair.left.Close();
  EXPECT_EQ(ReadFrame(pair.right.get(), absl::InfiniteFuture()).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(WriteFrame(pair.right.get(), {FrameKind::kDone, "x"}, absl::InfiniteFuture()).code(),
            absl::StatusCode::kUnavailable);
}

TEST(Frame, WaitsNoLongerThanItsDeadline) {
  const Pair pair;
  EXPECT_EQ(ReadFrame(pair.right.get(), absl::Now() - absl::Seconds(1)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(Frame, RefusesWhatIsNone) {
  for (const std::string& bytes : {std::string("HTTP/1.1 "), std::string("\x01\xff\xff\xff\xff", 5)}) {
    const Pair pair;
    ASSERT_EQ(send(pair.left.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(ReadFrame(pair.right.get(), absl::InfiniteFuture()).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

}  // namespace
}  // namespace penstock
