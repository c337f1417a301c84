#include "tests/system/sharding/checkpoint_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"

namespace penstock::testing {
namespace {

// Bytes of a tensor, and which of them somebody has written.
struct Assembled {
  std::string bytes;
  std::string written;
};

void Put(const std::string& name, size_t begin, const std::string& bytes, Assembled& tensor) {
  tensor.bytes.resize(std::max(tensor.bytes.size(), begin + bytes.size()));
  tensor.written.resize(tensor.bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    char& byte = tensor.bytes[begin + i];
    if (tensor.written[begin + i] != 0) {
      ASSERT_EQ(byte, bytes[i]) << "ranks differ in " << name << " at byte " << begin + i;
    }
    byte = bytes[i];
    tensor.written[begin + i] = 1;
  }
}

void ReadRank(const std::string& path, std::map<std::string, Assembled>& tensors, uint64_t& state_bytes) {
  const absl::StatusOr<std::string> contents = ReadFile(path);
  ASSERT_TRUE(contents.ok()) << contents.status();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, contents->data(), sizeof(header_bytes));
  const size_t data = sizeof(header_bytes) + header_bytes;
  const auto header = nlohmann::json::parse(contents->substr(sizeof(header_bytes), header_bytes));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0];
    const size_t end = entry["data_offsets"][1];
    if (name.starts_with("optimizer.")) state_bytes += end - begin;
    size_t elements = 1;
    for (const size_t size : entry["shape"]) elements *= size;
    const size_t bracket = name.find('[');
    size_t first = 0;
    if (bracket != std::string::npos) first = std::stoul(name.substr(bracket + 1));
    const std::string whole = name.substr(0, bracket);
    Put(whole, first * ((end - begin) / elements), contents->substr(data + begin, end - begin),
        tensors[whole]);
  }
}

}  // namespace

CheckpointTensors ReadCheckpoint(const std::string& folder, uint32_t ranks) {
  std::map<std::string, Assembled> assembled;
  CheckpointTensors checkpoint;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    ReadRank(absl::StrCat(folder, "/rank-", rank, ".safetensors"), assembled, checkpoint.state_bytes[rank]);
  }
  for (const auto& [name, tensor] : assembled) {
    EXPECT_EQ(tensor.written.find('\0'), std::string::npos) << name << " is not whole";
    checkpoint.tensors[name] = tensor.bytes;
  }
  return checkpoint;
}

}  // namespace penstock::testing
