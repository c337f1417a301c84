// The index of a dataset. The first two bytes are the size of the .bin file, the others the .idx file.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/dataset/index_format.h"
#include "common/dataset/indexed_dataset.h"
#include "tests/fuzz/fuzz_message.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

constexpr size_t kSizeBytes = 2;

void Append(std::string& to, const auto& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Three sequences, of which two are one document.
std::string ValidInput() {
  const std::vector<int32_t> lengths = {3, 2, 4};
  std::string input;
  Append(input, uint16_t{2 * (3 + 2 + 4)});
  input += index_format::kMagic;
  Append(input, index_format::kVersion);
  Append(input, index_format::TokenType::kUint16);
  Append(input, uint64_t{lengths.size()});
  Append(input, uint64_t{3});
  for (const int32_t length : lengths) Append(input, length);
  for (const int64_t pointer : {0, 6, 10}) Append(input, pointer);
  for (const int64_t document : {0, 2, 3}) Append(input, document);
  return input;
}

}  // namespace
}  // namespace penstock

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned /*seed*/) {
  if (size <= penstock::kSizeBytes) {
    const std::string valid = penstock::ValidInput();
    size = std::min(valid.size(), max_size);
    std::memcpy(data, valid.data(), size);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;  // NOLINT(google-build-using-namespace)
  static const auto& folder = *new TemporaryFolder;
  if (size < kSizeBytes) return 0;
  const size_t bytes = data[0] + 256 * data[1];
  folder.Write("input.bin", std::string(bytes, '\1'));
  folder.Write("input.idx", {reinterpret_cast<const char*>(data + kSizeBytes), size - kSizeBytes});
  const auto dataset = IndexedDataset::Open(folder.Path("input"));
  if (!dataset.ok()) return 0;
  // What was opened can be read.
  for (size_t sample = 0; sample < (*dataset)->size(); ++sample) {
    const SampleLength length = (*dataset)->Length(sample);
    const auto tokens = (*dataset)->Tokens(sample);
    if (!tokens.ok() || tokens->size() != size_t{length.input} + length.target) __builtin_trap();
  }
  return 0;
}
