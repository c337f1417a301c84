#include "tests/system/equivalence/gathered_gradients.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/checkpoint/tensor_blocks.h"

namespace penstock::testing {

void GatheredGradients::Add(const NamedTensors& of_rank) {
  for (const auto& [entry, tensor] : of_rank) ASSERT_NO_FATAL_FAILURE(AddEntry(entry, tensor));
}

void GatheredGradients::AddEntry(const std::string& entry, const PlainTensor& tensor) {
  const EntryName name = ParseEntryName(entry);
  const auto whole = model_.find(name.tensor);
  ASSERT_TRUE(whole != model_.end()) << entry;
  const auto blocks = StoredBlocks(name, tensor.shape, whole->second.shape);
  ASSERT_TRUE(blocks.ok()) << entry << ": " << blocks.status();
  std::vector<double>& gathered = tensors_[name.tensor];
  gathered.resize(whole->second.values.size(), NAN);
  const Block all = WholeBlock(whole->second.shape);
  for (const LocatedBlock& stored : *blocks) {
    for (const Run& run : RunsOf(stored.block, stored, {all, 0, all.columns()})) {
      for (int64_t i = 0; i < run.count; ++i) {
        double& element = gathered[static_cast<size_t>(run.to + i)];
        const double value = tensor.values[static_cast<size_t>(run.from + i)];
        ASSERT_TRUE(std::isnan(element) || element == value)
            << entry << " is " << value << " here and " << element << " elsewhere";
        element = value;
      }
    }
  }
}

}  // namespace penstock::testing
