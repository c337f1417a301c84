#include "worker/rendezvous/messages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

constexpr size_t kNumberBytes = 8;

void AppendNumber(std::string& bytes, uint64_t number, size_t count) {
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>((number >> (8 * i)) & 0xFF));
}

void AppendText(std::string& bytes, const std::string& text) {
  AppendNumber(bytes, text.size(), kLengthBytes);
  bytes += text;
}

uint64_t NumberAt(absl::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    number |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return number;
}

std::string WithLength(const std::string& content) {
  std::string message;
  AppendText(message, content);
  return message;
}

// Takes a content apart from its begin.
class Reader {
 public:
  explicit Reader(absl::string_view content) : rest_(content) {}

  absl::StatusOr<absl::string_view> Bytes(uint64_t count) {
    if (count > rest_.size()) return absl::InvalidArgumentError("a message of the rendezvous is cut off");
    const absl::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }

  absl::StatusOr<uint64_t> Number(size_t count) {
    PENSTOCK_ASSIGN_OR_RETURN(const absl::string_view bytes, Bytes(count));
    return NumberAt(bytes);
  }

  absl::StatusOr<std::string> Text() {
    PENSTOCK_ASSIGN_OR_RETURN(const uint64_t count, Number(kLengthBytes));
    PENSTOCK_ASSIGN_OR_RETURN(const absl::string_view bytes, Bytes(count));
    return std::string(bytes);
  }

  absl::Status End() const {
    if (rest_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("a message of the rendezvous has something behind it");
  }

 private:
  absl::string_view rest_;
};

bool NeedsOneKey(TableOperation operation) {
  return operation == TableOperation::kSet || operation == TableOperation::kGet ||
         operation == TableOperation::kAdd || operation == TableOperation::kDelete;
}

absl::StatusOr<TableOperation> OperationOf(uint64_t number, size_t keys) {
  if (number < static_cast<uint64_t>(TableOperation::kSet) ||
      number > static_cast<uint64_t>(TableOperation::kCount)) {
    return absl::InvalidArgumentError(absl::StrCat("the rendezvous has no operation ", number));
  }
  const auto operation = static_cast<TableOperation>(number);
  if (NeedsOneKey(operation) && keys != 1)
    return absl::InvalidArgumentError(absl::StrCat("operation ", number, " with ", keys, " keys"));
  return operation;
}

}  // namespace

std::string EncodeMessage(const TableRequest& request) {
  std::string content;
  AppendNumber(content, static_cast<uint64_t>(request.operation), 1);
  AppendNumber(content, static_cast<uint64_t>(request.number), kNumberBytes);
  AppendText(content, request.value);
  for (const std::string& key : request.keys) AppendText(content, key);
  return WithLength(content);
}

std::string EncodeMessage(const TableAnswer& answer) {
  std::string content;
  AppendNumber(content, answer.found ? 1 : 0, 1);
  AppendNumber(content, static_cast<uint64_t>(answer.number), kNumberBytes);
  AppendText(content, answer.value);
  return WithLength(content);
}

absl::StatusOr<size_t> MessageLength(absl::string_view length_bytes) {
  const uint64_t length = NumberAt(length_bytes);
  if (length <= kMostMessageBytes) return static_cast<size_t>(length);
  return absl::InvalidArgumentError(
      absl::StrCat("a message of the rendezvous has ", length, " bytes, at most ", kMostMessageBytes));
}

absl::StatusOr<std::optional<std::string>> TakeMessage(std::string& received) {
  if (received.size() < kLengthBytes) return std::nullopt;
  PENSTOCK_ASSIGN_OR_RETURN(const size_t length,
                            MessageLength(absl::string_view(received).substr(0, kLengthBytes)));
  if (received.size() < kLengthBytes + length) return std::nullopt;
  std::string content = received.substr(kLengthBytes, length);
  received.erase(0, kLengthBytes + length);
  return content;
}

absl::StatusOr<TableRequest> DecodeRequest(absl::string_view content) {
  Reader reader(content);
  TableRequest request;
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t operation, reader.Number(1));
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t number, reader.Number(kNumberBytes));
  request.number = static_cast<int64_t>(number);
  PENSTOCK_ASSIGN_OR_RETURN(request.value, reader.Text());
  while (!reader.End().ok()) {
    PENSTOCK_ASSIGN_OR_RETURN(std::string key, reader.Text());
    request.keys.push_back(std::move(key));
  }
  PENSTOCK_ASSIGN_OR_RETURN(request.operation, OperationOf(operation, request.keys.size()));
  return request;
}

absl::StatusOr<TableAnswer> DecodeAnswer(absl::string_view content) {
  Reader reader(content);
  TableAnswer answer;
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t found, reader.Number(1));
  answer.found = found != 0;
  PENSTOCK_ASSIGN_OR_RETURN(const uint64_t number, reader.Number(kNumberBytes));
  answer.number = static_cast<int64_t>(number);
  PENSTOCK_ASSIGN_OR_RETURN(answer.value, reader.Text());
  PENSTOCK_RETURN_IF_ERROR(reader.End());
  return answer;
}

}  // namespace penstock::worker
