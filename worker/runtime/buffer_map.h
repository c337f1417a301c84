// Buffers of one kind by (stage, micro-batch), with errors where a program uses what is not there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace penstock::worker {

struct BufferKey {
  uint32_t stage = 0;
  uint32_t micro_batch = 0;
  auto operator<=>(const BufferKey&) const = default;
};

// `T` is cheap to copy, such as a tensor. Possible errors of all: INTERNAL, naming kind and key (the checker
// of the planner refuses a program that would cause one).
template <typename T>
class BufferMap {
 public:
  // `kind` is for messages: "output activation".
  explicit BufferMap(std::string kind) : kind_(std::move(kind)) {}

  bool Contains(const BufferKey& key) const { return buffers_.contains(key); }

  absl::Status Put(const BufferKey& key, T buffer) {
    if (buffers_.try_emplace(key, std::move(buffer)).second) return absl::OkStatus();
    return Error(key, "is already there");
  }

  absl::StatusOr<T> Get(const BufferKey& key) const {
    const auto found = buffers_.find(key);
    if (found == buffers_.end()) return Error(key, "is not there");
    return found->second;
  }

  absl::StatusOr<T> Take(const BufferKey& key) {
    auto node = buffers_.extract(key);
    if (node.empty()) return Error(key, "is not there");
    return std::move(node.mapped());
  }

  absl::Status Free(const BufferKey& key) { return Take(key).status(); }

 private:
  absl::Status Error(const BufferKey& key, const char* problem) const {
    return absl::InternalError(absl::StrCat("the ", kind_, " of micro-batch ", key.micro_batch, " on stage ",
                                            key.stage, " ", problem));
  }

  const std::string kind_;
  std::map<BufferKey, T> buffers_;
};

}  // namespace penstock::worker
