#include "planner/cli/advise/pool_report.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/text_table.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

double Ms(double ns) { return ns / kNanosecondsPerMillisecond; }

// Of the samples of a strategy's batches: the longest, and all together over their number.
struct BatchLengths {
  uint64_t longest = 0;
  uint64_t tokens_of_a_batch = 0;
};

BatchLengths LengthsOf(const PooledStrategy& pooled, absl::Span<const v1::Batch> batches) {
  BatchLengths lengths;
  for (const int batch : pooled.batches) {
    for (const v1::Sample& sample : batches[batch].samples()) {
      const uint64_t tokens = uint64_t{sample.input_tokens()} + sample.target_tokens();
      lengths.longest = std::max(lengths.longest, tokens);
      lengths.tokens_of_a_batch += tokens;
    }
  }
  if (!pooled.batches.empty()) lengths.tokens_of_a_batch /= pooled.batches.size();
  return lengths;
}

}  // namespace

std::string PoolText(const StrategyPool& pool, absl::Span<const v1::Batch> batches) {
  TextTable table(
      {"strategy", "fastest for", "longest sample", "tokens a batch", "mean ms", "ms on the first alone"});
  for (const PooledStrategy& pooled : pool.strategies) {
    const BatchLengths lengths = LengthsOf(pooled, batches);
    table.AddRow({StrategyName(pooled.strategy),
                  absl::StrCat(pooled.batches.size(), " of ", batches.size(), " batches"),
                  absl::StrCat(lengths.longest), absl::StrCat(lengths.tokens_of_a_batch),
                  Fixed(Ms(pooled.mean_ns), 1), Fixed(Ms(pooled.alone_ns), 1)});
  }
  return absl::StrCat(table.ToString(), "Mean iteration: ", Fixed(Ms(pool.pool_ns), 1),
                      " ms on whichever is fastest, ", Fixed(Ms(pool.alone_ns), 1),
                      " ms on the first alone.\n  --strategies '", StrategyNames(StrategiesOf(pool)), "'\n");
}

nlohmann::ordered_json PoolJson(const StrategyPool& pool, absl::Span<const v1::Batch> batches) {
  nlohmann::ordered_json strategies = nlohmann::ordered_json::array();
  for (const PooledStrategy& pooled : pool.strategies) {
    const BatchLengths lengths = LengthsOf(pooled, batches);
    strategies.push_back({{"strategy", StrategyName(pooled.strategy)},
                          {"batches", pooled.batches},
                          {"longest_sample", lengths.longest},
                          {"tokens_of_a_batch", lengths.tokens_of_a_batch},
                          {"mean_ms", Ms(pooled.mean_ns)},
                          {"first_alone_ms", Ms(pooled.alone_ns)}});
  }
  return {{"strategies", strategies},
          {"mean_ms", Ms(pool.pool_ns)},
          {"first_alone_ms", Ms(pool.alone_ns)},
          {"flag", absl::StrCat("--strategies '", StrategyNames(StrategiesOf(pool)), "'")}};
}

}  // namespace penstock::cli
