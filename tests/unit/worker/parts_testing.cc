#include "tests/unit/worker/parts_testing.h"

#include <algorithm>
#include <cstdlib>

#include "worker/program/share.h"

namespace penstock::worker {

uint32_t RowsIn(const MicroBatch& shape) {
  return static_cast<uint32_t>(RowLengths(shape, Side::kTarget).size());
}

std::vector<uint32_t> PartRows(uint32_t rows, uint32_t parts) {
  std::vector<uint32_t> ends = {0};
  for (; parts > 0; --parts) {
    const uint32_t own = parts == 1 ? rows : std::max(1U, rows / 2 - (parts - 2));
    ends.push_back(ends.back() + own);
    rows -= own;
  }
  return ends;
}

ModelConfig ExpertsWithWindows(DataType type) {
  ModelConfig config = SmallExpertsConfig(type);
  config.attention_window = 5;
  config.windowless_interval = 2;
  config.window_rotary_theta = 50;
  return config;
}

const std::vector<TestPipeline::Options>& EveryKindOfPass() {
  static const std::vector<TestPipeline::Options> options = {
      {},
      {.split_backward = true},
      {.recompute = {.selective = 4}},
      {.recompute = {.full = 4}},
      {.recompute = {.selective = 1, .full = 1}, .split_backward = true},
  };
  return options;
}

std::string NameOfLayout(const ::testing::TestParamInfo<Layout>& info) {
  const char* const names[] = {"Padded", "Packed", "Concatenated"};
  return names[static_cast<size_t>(info.param)];
}

bool IsRun(size_t combination, size_t every) {
  const char* const wanted = std::getenv("PENSTOCK_EQUIVALENCE");
  return (wanted != nullptr && std::string(wanted) == "all") || combination % every == 0;
}

}  // namespace penstock::worker
