#include "common/names/job_id.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

constexpr size_t kMaxJobIdBytes = 128;

bool IsJobIdCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
}

template <typename... Parts>
absl::Status WrongJobId(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace

absl::Status CheckJobId(absl::string_view field, absl::string_view id) {
  if (id.empty()) return WrongJobId(field, " is empty: name the job");
  if (id.size() > kMaxJobIdBytes)
    return WrongJobId(field, " has ", id.size(), " characters, at most ", kMaxJobIdBytes, " are allowed");
  if (!std::all_of(id.begin(), id.end(), IsJobIdCharacter))
    return WrongJobId(field, ": only letters, digits, '-', '_' and '.' are allowed");
  if (id == "." || id == "..")
    return WrongJobId(field, " is '", id, "', which names a folder outside of the run's: name the job");
  return absl::OkStatus();
}

}  // namespace penstock
