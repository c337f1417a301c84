// Reads cost profiles from JSON.
//
// Two kinds of file: the JSON form of v1::ProfileFile, as `penstock-worker profile` writes it, and the
// analytic reference profiles (a grid of times in milliseconds beside closed forms written as text). Which
// one it is shows in the file's own keys.
//
//   absl::StatusOr<v1::ProfileFile> file = ParseProfile(text);
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

// Possible errors: INVALID_ARGUMENT (no JSON; a key is missing, of the wrong type or unknown; a formula of an
// unknown form; a formula that contradicts the grid): the message names the key.
absl::StatusOr<v1::ProfileFile> ParseProfile(absl::string_view json);

}  // namespace penstock::core
