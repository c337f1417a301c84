// CSV files of lengths, as --lengths names them; their first line serves as --rows too.
#include <algorithm>
#include <string>

#include "planner/cli/sample_lengths.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;  // NOLINT(google-build-using-namespace)
  const fuzz::MemoryFile file(data, size);
  const auto all = cli::ReadAllLengths(file.path());
  if (all.ok() && !all->empty() && !cli::ReadLengths(file.path(), {0, all->size()}).ok()) __builtin_trap();
  const uint8_t* const end = std::find(data, data + size, '\n');
  cli::ParseRows(std::string(data, end)).status().IgnoreError();
  return 0;
}
