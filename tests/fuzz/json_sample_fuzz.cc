// A line of JSONL, as `penstock dataset import` reads it.
#include <string>

#include "common/dataset/json_sample.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto sample = penstock::ParseJsonSample(std::string(data, data + size));
  if (!sample.ok()) return 0;
  for (const int32_t token : sample->target) {
    if (token < 0) __builtin_trap();
  }
  return 0;
}
