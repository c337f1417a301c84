// A model's tokenizer in a process of its own, which runs penstock-tokenizer (worker/tokenizer).
//
//   PENSTOCK_ASSIGN_OR_RETURN(const auto tokenizer, TokenizerProcess::Start(program, "models/qwen"));
//   PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer->Encode("To be"));
//
// Its libraries are extension modules of Python, which no other program should have to load; no Python code
// runs there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/process/file_descriptor.h"
#include "common/tokenizer/frame.h"
#include "common/tokenizer/text_tokenizer.h"

namespace penstock {

std::string ToJson(const TokenizerInfo& info);
// Possible errors: DATA_LOSS.
absl::StatusOr<TokenizerInfo> TokenizerInfoOfJson(const std::string& text);

class TokenizerProcess : public TextTokenizer {
 public:
  // `program`: the path of penstock-tokenizer. `path`: tokenizer.json, tokenizer.model or spiece.model, or a
  // folder that holds one. The calling thread must live as long as the process. Possible errors: NOT_FOUND
  // and UNAVAILABLE (the program cannot be started), INVALID_ARGUMENT (names `path` and what is wrong with
  // it), DEADLINE_EXCEEDED.
  static absl::StatusOr<std::unique_ptr<TokenizerProcess>> Start(const std::string& program,
                                                                 const std::string& path);
  // Ends the process.
  ~TokenizerProcess() override;
  TokenizerProcess(const TokenizerProcess&) = delete;
  TokenizerProcess& operator=(const TokenizerProcess&) = delete;

  const TokenizerInfo& info() const override { return info_; }
  // Possible errors besides: UNAVAILABLE (the process has ended), DEADLINE_EXCEEDED.
  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text) override;
  std::vector<absl::StatusOr<std::vector<int32_t>>> EncodeAll(const std::vector<std::string>& texts) override;
  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& tokens) override;
  absl::StatusOr<std::string> Render(const std::string& messages, bool add_generation_prompt) override;

 private:
  TokenizerProcess(pid_t pid, FileDescriptor socket) : pid_(pid), socket_(std::move(socket)) {}

  absl::StatusOr<std::string> Ask(FrameKind kind, std::string payload);
  // One for each of the requests.
  absl::StatusOr<std::vector<Frame>> AskMany(const std::vector<Frame>& requests);

  const pid_t pid_;
  FileDescriptor socket_;
  TokenizerInfo info_;
};

}  // namespace penstock
