#include "common/tokenizer/frame.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr size_t kHeaderBytes = 5;
constexpr uint32_t kMostBytes = 1U << 30;
constexpr absl::Duration kLongestPoll = absl::Hours(1);

absl::Status NoFrame() {
  return absl::DataLossError("what came from the other side of penstock-tokenizer is no message of its");
}

// Kind and length of what follows.
void AppendHeader(const Frame& frame, std::string* message) {
  const auto bytes = static_cast<uint32_t>(frame.payload.size());
  message->push_back(static_cast<char>(frame.kind));
  message->append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
}

// Without its payload, of which `bytes` follow.
absl::StatusOr<Frame> ReadHeader(const char* header, uint32_t* bytes) {
  std::memcpy(bytes, header + 1, sizeof(*bytes));
  const auto kind = static_cast<FrameKind>(*header);
  if (kind < FrameKind::kEncode || kind > FrameKind::kMany || *bytes > kMostBytes) return NoFrame();
  return Frame{.kind = kind};
}

absl::Status Gone() { return absl::UnavailableError("penstock-tokenizer has ended"); }

// Blocks until the socket can be read from, or written to.
absl::Status WaitFor(int socket, int16_t event, absl::Time deadline) {
  for (;;) {
    const absl::Duration left = std::min(deadline - absl::Now(), kLongestPoll);
    if (left < absl::ZeroDuration()) return absl::DeadlineExceededError("penstock-tokenizer does not answer");
    pollfd watched = {.fd = socket, .events = event, .revents = 0};
    if (poll(&watched, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) > 0) return absl::OkStatus();
  }
}

// Calls `transfer(data, bytes)`, a system call of the socket that does not block, until all bytes are
// through. Waits only where there is nothing to do: most of a message is there with its first bytes.
template <typename Transfer>
absl::Status TransferAll(int socket, int16_t event, size_t bytes, absl::Time deadline,
                         const Transfer& transfer) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t now = transfer(done, bytes - done);
    if (now == 0 || (now < 0 && errno != EINTR && errno != EAGAIN)) return Gone();
    if (now > 0) done += static_cast<size_t>(now);
    if (now < 0) PENSTOCK_RETURN_IF_ERROR(WaitFor(socket, event, deadline));
  }
  return absl::OkStatus();
}

absl::Status Receive(int socket, char* data, size_t bytes, absl::Time deadline) {
  return TransferAll(socket, POLLIN, bytes, deadline,
                     [&](size_t done, size_t left) { return recv(socket, data + done, left, MSG_DONTWAIT); });
}

absl::Status Send(int socket, const char* data, size_t bytes, absl::Time deadline) {
  return TransferAll(socket, POLLOUT, bytes, deadline, [&](size_t done, size_t left) {
    return send(socket, data + done, left, MSG_DONTWAIT | MSG_NOSIGNAL);
  });
}

}  // namespace

absl::StatusOr<Frame> ReadFrame(int socket, absl::Time deadline) {
  std::array<char, kHeaderBytes> header = {};
  PENSTOCK_RETURN_IF_ERROR(Receive(socket, header.data(), header.size(), deadline));
  uint32_t bytes = 0;
  PENSTOCK_ASSIGN_OR_RETURN(Frame frame, ReadHeader(header.data(), &bytes));
  frame.payload.resize(bytes);
  PENSTOCK_RETURN_IF_ERROR(Receive(socket, frame.payload.data(), bytes, deadline));
  return frame;
}

absl::Status WriteFrame(int socket, const Frame& frame, absl::Time deadline) {
  std::string message;
  message.reserve(kHeaderBytes + frame.payload.size());
  AppendHeader(frame, &message);
  message += frame.payload;
  return Send(socket, message.data(), message.size(), deadline);
}

std::string PackFrames(const std::vector<Frame>& frames) {
  std::string payload;
  for (const Frame& frame : frames) {
    AppendHeader(frame, &payload);
    payload += frame.payload;
  }
  return payload;
}

absl::StatusOr<std::vector<Frame>> UnpackFrames(const std::string& payload) {
  std::vector<Frame> frames;
  for (size_t at = 0; at < payload.size();) {
    if (payload.size() - at < kHeaderBytes) return NoFrame();
    uint32_t bytes = 0;
    PENSTOCK_ASSIGN_OR_RETURN(Frame frame, ReadHeader(payload.data() + at, &bytes));
    at += kHeaderBytes;
    if (payload.size() - at < bytes) return NoFrame();
    frame.payload = payload.substr(at, bytes);
    at += bytes;
    frames.push_back(std::move(frame));
  }
  return frames;
}

std::string TokensToPayload(const std::vector<int32_t>& tokens) {
  return std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t));
}

std::vector<int32_t> TokensOfPayload(const std::string& payload) {
  std::vector<int32_t> tokens(payload.size() / sizeof(int32_t));
  // No tokens have no address.
  if (!tokens.empty()) std::memcpy(tokens.data(), payload.data(), tokens.size() * sizeof(int32_t));
  return tokens;
}

}  // namespace penstock
