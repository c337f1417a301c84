// The profile of a model with adapters, made of that of the model without (execution.md, section 14).
//
//   PENSTOCK_RETURN_IF_ERROR(AdaptProfile(adapters, &file));
#pragma once

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace penstock::core {

// The model of the file then has the adapters. One that has the same already stays as it is. Possible errors:
// INVALID_ARGUMENT (it has others; the model cannot have these: names the field).
absl::Status AdaptProfile(const v1::Adapters& adapters, v1::ProfileFile* file);

// Whether they are the same adapters, whatever order their layers are named in.
bool AreSame(const v1::Adapters& left, const v1::Adapters& right);

}  // namespace penstock::core
