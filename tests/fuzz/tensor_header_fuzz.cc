// Headers of safetensors files: every tensor of one that is taken lies within the file.
#include "worker/checkpoint/tensor_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto header = penstock::worker::ParseTensorHeader({reinterpret_cast<const char*>(data), size});
  if (!header.ok()) return 0;
  for (const auto& [name, entry] : header->entries) {
    if (entry.begin > entry.end || header->data_begin + entry.end > size) __builtin_trap();
  }
  return 0;
}
