#include "common/tokenizer/frame.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr size_t kHeaderBytes = 5;
constexpr uint32_t kMostBytes = 1U << 30;
constexpr absl::Duration kLongestPoll = absl::Hours(1);

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
  std::memcpy(&bytes, header.data() + 1, sizeof(bytes));
  Frame frame = {.kind = static_cast<FrameKind>(header[0])};
  if (frame.kind < FrameKind::kEncode || frame.kind > FrameKind::kRefused || bytes > kMostBytes)
    return absl::DataLossError("what came from the other side of penstock-tokenizer is no message of its");
  frame.payload.resize(bytes);
  PENSTOCK_RETURN_IF_ERROR(Receive(socket, frame.payload.data(), bytes, deadline));
  return frame;
}

absl::Status WriteFrame(int socket, const Frame& frame, absl::Time deadline) {
  const auto bytes = static_cast<uint32_t>(frame.payload.size());
  std::string message(kHeaderBytes, static_cast<char>(frame.kind));
  std::memcpy(message.data() + 1, &bytes, sizeof(bytes));
  message += frame.payload;
  return Send(socket, message.data(), message.size(), deadline);
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
