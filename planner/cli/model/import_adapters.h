// Adapters of PEFT, beside a model that was imported, to a folder to train from, to generate with, to merge.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

struct ImportedAdapters {
  v1::Adapters adapters;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

// Whether it is a folder of PEFT's.
bool HasPeftAdapters(const std::string& folder);

// `from`: of PEFT's; `base`: a model folder without adapters, of which `to` keeps links (base_folder.h).
// Where a module makes several of Penstock's layers, each of these gets A and its own rows of B, or, of an
// export of Penstock's, what it had. Possible errors: ALREADY_EXISTS (`to` has checkpoints), NOT_FOUND,
// INVALID_ARGUMENT (adapters that Penstock does not have, or of another model; names field or tensor), those
// of the file system.
absl::StatusOr<ImportedAdapters> ImportAdapters(const std::string& from, const std::string& base,
                                                const std::string& to);

}  // namespace penstock::cli
