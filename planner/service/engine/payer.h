// Who pays for what the planner does: whom queues, memory and quotas count it for.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

inline constexpr char kOwnerPrefix[] = "owner ";

inline std::string PayerOfOwner(const std::string& owner) { return absl::StrCat(kOwnerPrefix, owner); }

// The job's owner, or, where nobody knows who calls, the job itself.
inline std::string PayerOf(const v1::JobSpec& spec) {
  return spec.owner().empty() ? absl::StrCat("job ", spec.job_id()) : PayerOfOwner(spec.owner());
}

// Empty for one that nobody knows: a job, or the host that a call comes from.
inline std::string OwnerOfPayer(absl::string_view payer) {
  return absl::ConsumePrefix(&payer, kOwnerPrefix) ? std::string(payer) : std::string();
}

// For messages.
inline std::string NameOfPayer(const std::string& payer) {
  const std::string owner = OwnerOfPayer(payer);
  return owner.empty() ? payer : absl::StrCat("owner '", owner, "'");
}

}  // namespace penstock
