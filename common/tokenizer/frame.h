// What penstock-tokenizer and whoever asks it send each other, over one socket: a kind, a length, bytes.
//
// The program speaks first: kDone with a TokenizerInfo as JSON, or kRefused with the reason. Then each
// request has one reply, in order: kDone with what was asked for, or kRefused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace penstock {

enum class FrameKind : uint8_t {
  // Requests. Text, UTF-8; the reply is its tokens, without those that begin and end a text.
  kEncode = 1,
  // Tokens; the reply is their text.
  kDecode = 2,
  // {"messages": [{"role", "content"}], "add_generation_prompt": bool}; the reply is the conversation's text.
  kRender = 3,
  // Several, one behind the other (PackFrames); the reply is theirs, likewise. A message between
  // processes costs as much as making the tokens of a line of text.
  kMany = 6,
  // Replies.
  kDone = 4,
  kRefused = 5,
};

struct Frame {
  FrameKind kind = FrameKind::kRefused;
  std::string payload = {};
};

// At most 1 GiB. Possible errors: UNAVAILABLE (the other side has gone), DEADLINE_EXCEEDED, DATA_LOSS (this
// is no frame).
absl::StatusOr<Frame> ReadFrame(int socket, absl::Time deadline);
absl::Status WriteFrame(int socket, const Frame& frame, absl::Time deadline);

// Several as the payload of one, and back. Possible errors: DATA_LOSS (these are no frames).
std::string PackFrames(const std::vector<Frame>& frames);
absl::StatusOr<std::vector<Frame>> UnpackFrames(const std::string& payload);

// Tokens as a payload, 4 bytes each in the machine's order, and back.
std::string TokensToPayload(const std::vector<int32_t>& tokens);
std::vector<int32_t> TokensOfPayload(const std::string& payload);

}  // namespace penstock
