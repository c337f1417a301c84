// penstock-tokenizer PATH: answers requests that come on stdin (common/tokenizer/frame.h) with the tokenizer
// of PATH, until stdin ends. Started by TokenizerProcess, not by people.
#include <fcntl.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/frame.h"
#include "common/tokenizer/tokenizer_process.h"
#include "worker/tokenizer/chat_template.h"
#include "worker/tokenizer/text_codec.h"

namespace penstock::worker {
namespace {

Frame ReplyOf(const absl::StatusOr<std::string>& answer) {
  return answer.ok() ? Frame{FrameKind::kDone, *answer}
                     : Frame{FrameKind::kRefused, std::string(answer.status().message())};
}

class Answers {
 public:
  static absl::StatusOr<Answers> Create(const std::string& path) {
    PENSTOCK_ASSIGN_OR_RETURN(TokenizerFiles files, FindTokenizer(path));
    PENSTOCK_ASSIGN_OR_RETURN(auto codec, MakeTextCodec(files));
    return Answers(std::move(files), std::move(codec));
  }

  TokenizerInfo info() const { return codec_->info(); }

  absl::StatusOr<std::string> To(const Frame& request) {
    switch (request.kind) {
      case FrameKind::kEncode: {
        PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, codec_->Encode(request.payload));
        return TokensToPayload(tokens);
      }
      case FrameKind::kDecode:
        return codec_->Decode(TokensOfPayload(request.payload));
      case FrameKind::kRender:
        return Render(request.payload);
      case FrameKind::kMany:
        return ToMany(request.payload);
      default:
        return absl::InvalidArgumentError("this is no request");
    }
  }

 private:
  Answers(TokenizerFiles files, std::unique_ptr<TextCodec> codec)
      : files_(std::move(files)), codec_(std::move(codec)) {}

  absl::StatusOr<std::string> ToMany(const std::string& payload) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Frame> requests, UnpackFrames(payload));
    std::vector<Frame> replies;
    for (const Frame& request : requests) {
      if (request.kind == FrameKind::kMany) return absl::InvalidArgumentError("many requests inside of many");
      replies.push_back(ReplyOf(To(request)));
    }
    return PackFrames(replies);
  }

  absl::StatusOr<std::string> Render(const std::string& request) {
    if (chat_template_ == nullptr) {
      PENSTOCK_ASSIGN_OR_RETURN(chat_template_, MakeChatTemplate(files_));
    }
    const auto json = nlohmann::json::parse(request, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("messages"))
      return absl::InvalidArgumentError("this is no conversation");
    return chat_template_->Render(json["messages"].dump(), json.value("add_generation_prompt", false));
  }

  TokenizerFiles files_;
  std::unique_ptr<TextCodec> codec_;
  // Opened when it is asked for.
  std::unique_ptr<ChatTemplate> chat_template_;
};

absl::Status Reply(int socket, const absl::StatusOr<std::string>& answer) {
  return WriteFrame(socket, ReplyOf(answer), absl::InfiniteFuture());
}

// Until the other side has gone.
void Serve(int socket, const std::string& path) {
  absl::StatusOr<Answers> answers = Answers::Create(path);
  const absl::StatusOr<std::string> hello =
      answers.ok() ? absl::StatusOr<std::string>(ToJson(answers->info())) : answers.status();
  if (!Reply(socket, hello).ok() || !answers.ok()) return;
  for (;;) {
    const absl::StatusOr<Frame> request = ReadFrame(socket, absl::InfiniteFuture());
    if (!request.ok() || !Reply(socket, answers->To(*request)).ok()) return;
  }
}

// The libraries log to stdout and stderr what is of no use to anybody.
void Silence() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
}

}  // namespace
}  // namespace penstock::worker

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr
        << "penstock-tokenizer is started by `penstock dataset import --tokenizer` and `penstock generate`\n";
    return 2;
  }
  const int socket = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  penstock::worker::Silence();
  penstock::worker::Serve(socket, argv[1]);
  return 0;
}
