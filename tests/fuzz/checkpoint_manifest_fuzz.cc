// Manifests of checkpoints.
#include <string_view>

#include "tests/support/temporary_folder.h"
#include "worker/runtime/checkpoint_store.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& folder = *new penstock::TemporaryFolder;
  folder.Write("iteration-7/manifest.json", std::string_view(reinterpret_cast<const char*>(data), size));
  const auto newest = penstock::worker::FindNewestCheckpoint(folder.path());
  if (newest.ok() && newest->has_value() && ((*newest)->ranks == 0 || (*newest)->next_iteration != 7))
    __builtin_trap();
  return 0;
}
