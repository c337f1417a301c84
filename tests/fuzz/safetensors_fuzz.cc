// Headers of safetensors files: every tensor of one that is taken lies within the file.
#include "common/safetensors/header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto layout = penstock::ParseSafetensors({reinterpret_cast<const char*>(data), size});
  if (!layout.ok()) return 0;
  for (const auto& [name, tensor] : layout->tensors) {
    if (tensor.begin > tensor.end || layout->data_begin + tensor.end > size) __builtin_trap();
  }
  return 0;
}
