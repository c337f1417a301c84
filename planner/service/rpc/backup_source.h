// The messages of a backup, one after another: first how far the copy of the store is, then its bytes.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "common/hash/sha256.h"
#include "penstock/v1/operations.pb.h"
#include "planner/service/store/store_copy.h"

namespace penstock {

// Not thread-safe; calls take milliseconds of a disk.
class BackupSource {
 public:
  explicit BackupSource(std::unique_ptr<StoreCopy> copy) : copy_(std::move(copy)) {}

  // Nullopt: the last message was the end. Possible errors: those of StoreCopy::Step, DATA_LOSS (the copy
  // cannot be read).
  absl::StatusOr<std::optional<v1::BackUpResponse>> Next();

 private:
  absl::StatusOr<v1::BackUpResponse> CopyMore();
  absl::StatusOr<v1::BackUpResponse> ReadMore();

  const std::unique_ptr<StoreCopy> copy_;
  // Open once the copy is whole.
  std::ifstream file_;
  uint64_t bytes_ = 0;
  Sha256Sum sum_;
  bool ended_ = false;
};

}  // namespace penstock
