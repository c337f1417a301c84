#include "planner/service/store/record_checksum.h"

#include <zlib.h>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

uLong Extend(uLong checksum, absl::string_view bytes) {
  return crc32_z(checksum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

}  // namespace

uint64_t RecordChecksum(const RecordKey& key, absl::string_view bytes) {
  return Extend(Extend(0, absl::StrCat(key.kind, " ", key.job, " ", key.number, "\n")), bytes);
}

absl::Status CheckRecord(const RecordKey& key, absl::string_view bytes, uint64_t checksum) {
  if (RecordChecksum(key, bytes) == checksum) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the ", key.kind, " ", key.number, " of job ", key.job, " is not what was stored"));
}

}  // namespace penstock
