#include "planner/service/rpc/backup_source.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

}  // namespace

absl::StatusOr<std::optional<v1::BackUpResponse>> BackupSource::Next() {
  if (ended_) return std::nullopt;
  if (!file_.is_open()) return CopyMore();
  return ReadMore();
}

absl::StatusOr<v1::BackUpResponse> BackupSource::CopyMore() {
  PENSTOCK_ASSIGN_OR_RETURN(const bool copied, copy_->Step());
  v1::BackUpResponse response;
  response.mutable_progress()->set_copied_bytes(copy_->copied_bytes());
  response.mutable_progress()->set_total_bytes(copy_->total_bytes());
  if (!copied) return response;
  file_.open(copy_->path(), std::ios::binary);
  if (!file_.is_open())
    return absl::DataLossError(absl::StrCat("the copy '", copy_->path(), "' cannot be read"));
  return response;
}

absl::StatusOr<v1::BackUpResponse> BackupSource::ReadMore() {
  std::string chunk(kChunkBytes, '\0');
  file_.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
  if (file_.bad()) return absl::DataLossError(absl::StrCat("the copy '", copy_->path(), "' cannot be read"));
  chunk.resize(static_cast<size_t>(file_.gcount()));
  v1::BackUpResponse response;
  if (chunk.empty()) {
    ended_ = true;
    response.mutable_end()->set_bytes(bytes_);
    response.mutable_end()->set_sha256(sum_.Digest());
    return response;
  }
  bytes_ += chunk.size();
  sum_.Add(chunk);
  response.set_content(std::move(chunk));
  return response;
}

}  // namespace penstock
