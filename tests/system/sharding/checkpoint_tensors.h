// What a checkpoint holds, without LibTorch and without a line of the worker's code.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace penstock::testing {

struct CheckpointTensors {
  // By name, as bytes: pieces of tensors ("name[3:7]") put together, wherever they are.
  std::map<std::string, std::string> tensors;
  // Of all ranks' tensors with names that begin with "optimizer.", by rank.
  std::map<uint32_t, uint64_t> state_bytes;
};

// `folder` has a file for each of `ranks`. A test failure where one is missing, where ranks hold different
// values of a tensor, or where elements of one are missing.
CheckpointTensors ReadCheckpoint(const std::string& folder, uint32_t ranks);

}  // namespace penstock::testing
