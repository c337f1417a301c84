// Cost profiles as files, and what planners make of them.
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/profile_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;  // NOLINT(google-build-using-namespace)
  const auto file = core::ParseProfile({reinterpret_cast<const char*>(data), size});
  if (!file.ok()) return 0;
  core::ProfileFromProto(file->profile(), core::Architecture::kGpt).status().IgnoreError();
  core::ProfileFromProto(file->profile(), core::Architecture::kT5).status().IgnoreError();
  return 0;
}
