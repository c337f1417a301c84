// Manifests of checkpoints, and the records of their parts.
#include <string_view>

#include "common/checkpoint/checkpoint_folder.h"
#include "tests/support/temporary_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& folder = *new penstock::TemporaryFolder;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  folder.Write("iteration-7/manifest.json", text);
  const auto found = penstock::OpenCheckpoint(folder.path(), 7, penstock::CheckpointDepth::kContents);
  // There are no parts.
  if (found.ok()) __builtin_trap();
  const auto manifest = penstock::ParseManifest({text.data(), text.size()});
  if (manifest.ok() && (manifest->ranks == 0 || manifest->parts.size() % manifest->ranks != 0))
    __builtin_trap();
  penstock::ParseRecord({text.data(), text.size()}).status().IgnoreError();
  return 0;
}
