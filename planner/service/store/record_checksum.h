// A checksum of what is stored, beside it: databases find broken pages, not every changed byte.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Where a record belongs; part of its checksum, so that one in the wrong place is found too.
struct RecordKey {
  absl::string_view kind = {};
  uint64_t job = 0;
  // Sequence or iteration.
  uint64_t number = 0;
};

inline RecordKey EventKey(uint64_t job, uint64_t sequence) { return {"event", job, sequence}; }
inline RecordKey SnapshotKey(uint64_t job, uint64_t sequence) { return {"snapshot", job, sequence}; }
inline RecordKey BatchKey(uint64_t job, uint64_t iteration) { return {"batch", job, iteration}; }

// CRC-32 of the key and the bytes.
uint64_t RecordChecksum(const RecordKey& key, absl::string_view bytes);

// DATA_LOSS, naming the record, when the bytes are not those of the checksum.
absl::Status CheckRecord(const RecordKey& key, absl::string_view bytes, uint64_t checksum);

}  // namespace penstock
