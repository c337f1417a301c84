// What ranks say to the table of an epoch (table.h), and what it answers, as bytes.
//
// A message is its length (4 bytes, little endian) and its content, in which numbers are little endian and
// texts have their length before them. Ranks of a job are of one version: there are no optional fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock::worker {

// Of the content. A rank waits for a key of each other one, which is the longest that it has to say.
inline constexpr size_t kMostMessageBytes = size_t{4} << 20;
// Before the content.
inline constexpr size_t kLengthBytes = 4;

enum class TableOperation : uint8_t {
  kSet = 1,     // keys[0], value
  kGet = 2,     // keys[0]
  kAdd = 3,     // keys[0], number: the summand. The value is the sum as decimal digits
  kWait = 4,    // keys, number: milliseconds
  kCheck = 5,   // keys
  kDelete = 6,  // keys[0]
  kCount = 7,
};

struct TableRequest {
  TableOperation operation = TableOperation::kCount;
  std::vector<std::string> keys = {};
  std::string value = {};
  int64_t number = 0;
};

struct TableAnswer {
  // Get, delete: whether the key was there. Wait, check: whether all are.
  bool found = true;
  // Add: the sum. Count: how many keys there are.
  int64_t number = 0;
  std::string value = {};
};

// The content with its length before it.
std::string EncodeMessage(const TableRequest& request);
std::string EncodeMessage(const TableAnswer& answer);

// Of the content that follows. Possible errors: INVALID_ARGUMENT (more than kMostMessageBytes).
absl::StatusOr<size_t> MessageLength(absl::string_view length_bytes);
// Takes the content of the first message from the begin of `received`; none: it has not come as a whole.
// Possible errors: those of MessageLength.
absl::StatusOr<std::optional<std::string>> TakeMessage(std::string& received);

// Of a content. Possible errors: INVALID_ARGUMENT (not what EncodeMessage makes).
absl::StatusOr<TableRequest> DecodeRequest(absl::string_view content);
absl::StatusOr<TableAnswer> DecodeAnswer(absl::string_view content);

}  // namespace penstock::worker
