#include "common/tokenizer/tokenizer_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/process/spawn.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// Of a vocabulary with a million entries, on a busy machine; of the longest text.
constexpr absl::Duration kLongestStart = absl::Minutes(2);
constexpr absl::Duration kLongestAnswer = absl::Minutes(10);
// Of texts in one message.
constexpr size_t kBytesTogether = 1 << 18;

std::vector<std::string> Environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

std::string LastLine(int file) {
  std::string text(size_t{4096}, '\0');
  const ssize_t bytes = pread(file, text.data(), text.size(), 0);
  text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "it has said nothing" : lines.back();
}

absl::StatusOr<std::string> PayloadOf(absl::StatusOr<Frame> frame) {
  PENSTOCK_RETURN_IF_ERROR(frame.status());
  if (frame->kind == FrameKind::kRefused) return absl::InvalidArgumentError(frame->payload);
  return std::move(frame->payload);
}

absl::StatusOr<std::vector<int32_t>> TokensOfAnswer(absl::StatusOr<Frame> frame) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string payload, PayloadOf(std::move(frame)));
  return TokensOfPayload(payload);
}

}  // namespace

std::string ToJson(const TokenizerInfo& info) {
  return nlohmann::json({{"prefix", info.prefix},
                         {"suffix", info.suffix},
                         {"end", info.end},
                         {"vocab", info.vocab},
                         {"has_chat_template", info.has_chat_template}})
      .dump();
}

absl::StatusOr<TokenizerInfo> TokenizerInfoOfJson(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::DataLossError("penstock-tokenizer says nothing of its tokenizer");
  return TokenizerInfo{.prefix = json.value("prefix", std::vector<int32_t>()),
                       .suffix = json.value("suffix", std::vector<int32_t>()),
                       .end = json.value("end", -1),
                       .vocab = json.value("vocab", 0U),
                       .has_chat_template = json.value("has_chat_template", false)};
}

absl::StatusOr<std::unique_ptr<TokenizerProcess>> TokenizerProcess::Start(const std::string& program,
                                                                          const std::string& path) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return SystemError(errno, "cannot make the socket of a tokenizer");
  FileDescriptor own(ends[0]);
  FileDescriptor child(ends[1]);
  // Each stream takes a descriptor of its own.
  FileDescriptor child_output(fcntl(ends[1], F_DUPFD_CLOEXEC, 0));
  // What is said before the program is itself: by the loader, and by libraries.
  const FileDescriptor said(memfd_create("penstock-tokenizer", MFD_CLOEXEC));
  PENSTOCK_ASSIGN_OR_RETURN(const pid_t pid, Spawn({.program = program,
                                                    .arguments = {program, path},
                                                    .environment = Environment(),
                                                    .input = child.get(),
                                                    .output = child_output.get(),
                                                    .error = said.get()}));
  // Held open here, it would hide the end of the process.
  child.Close();
  child_output.Close();
  auto process = std::unique_ptr<TokenizerProcess>(new TokenizerProcess(pid, std::move(own)));
  const absl::StatusOr<std::string> info =
      PayloadOf(ReadFrame(process->socket_.get(), absl::Now() + kLongestStart));
  if (absl::IsUnavailable(info.status())) {
    return absl::UnavailableError(absl::StrCat(info.status().message(), ": ", LastLine(said.get())));
  }
  PENSTOCK_RETURN_IF_ERROR(info.status());
  PENSTOCK_ASSIGN_OR_RETURN(process->info_, TokenizerInfoOfJson(*info));
  return process;
}

TokenizerProcess::~TokenizerProcess() {
  socket_.Close();
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::StatusOr<std::string> TokenizerProcess::Ask(FrameKind kind, std::string payload) {
  const absl::Time deadline = absl::Now() + kLongestAnswer;
  PENSTOCK_RETURN_IF_ERROR(WriteFrame(socket_.get(), {kind, std::move(payload)}, deadline));
  return PayloadOf(ReadFrame(socket_.get(), deadline));
}

absl::StatusOr<std::vector<int32_t>> TokenizerProcess::Encode(const std::string& text) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string payload, Ask(FrameKind::kEncode, text));
  return TokensOfPayload(payload);
}

absl::StatusOr<std::vector<Frame>> TokenizerProcess::AskMany(const std::vector<Frame>& requests) {
  const absl::StatusOr<std::string> payload = Ask(FrameKind::kMany, PackFrames(requests));
  // It is not known at which of them.
  if (!payload.ok())
    return AnnotateError(payload.status(), absl::StrCat("one of ", requests.size(), " texts"));
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<Frame> answers, UnpackFrames(*payload));
  if (answers.size() == requests.size()) return answers;
  return absl::DataLossError(
      absl::StrCat("penstock-tokenizer answers ", answers.size(), " of ", requests.size(), " requests"));
}

std::vector<absl::StatusOr<std::vector<int32_t>>> TokenizerProcess::EncodeAll(
    const std::vector<std::string>& texts) {
  std::vector<absl::StatusOr<std::vector<int32_t>>> all;
  while (all.size() < texts.size()) {
    std::vector<Frame> requests;
    size_t bytes = 0;
    for (size_t i = all.size(); i < texts.size() && bytes + texts[i].size() <= kBytesTogether; ++i) {
      requests.push_back({FrameKind::kEncode, texts[i]});
      bytes += texts[i].size();
    }
    // A long one.
    if (requests.empty()) {
      all.push_back(Encode(texts[all.size()]));
      continue;
    }
    absl::StatusOr<std::vector<Frame>> answers = AskMany(requests);
    for (size_t i = 0; i < requests.size(); ++i)
      all.push_back(answers.ok() ? TokensOfAnswer(std::move((*answers)[i])) : answers.status());
  }
  return all;
}

absl::StatusOr<std::string> TokenizerProcess::Decode(const std::vector<int32_t>& tokens) {
  return Ask(FrameKind::kDecode, TokensToPayload(tokens));
}

absl::StatusOr<std::string> TokenizerProcess::Render(const std::string& messages,
                                                     bool add_generation_prompt) {
  if (!info_.has_chat_template) return absl::FailedPreconditionError("the tokenizer has no chat template");
  return Ask(FrameKind::kRender, absl::StrCat(R"({"messages":)", messages, R"(,"add_generation_prompt":)",
                                              add_generation_prompt ? "true" : "false", "}"));
}

}  // namespace penstock
