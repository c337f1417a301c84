// A number that an absl::Status carries as a payload, and gRPC as trailing metadata of the same key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace penstock {

inline absl::Status WithNumber(absl::Status status, const char* key, uint64_t number) {
  status.SetPayload(key, absl::Cord(absl::StrCat(number)));
  return status;
}

inline std::optional<uint64_t> NumberOf(const absl::Status& status, const char* key) {
  const auto payload = status.GetPayload(key);
  uint64_t number = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &number)) return std::nullopt;
  return number;
}

}  // namespace penstock
