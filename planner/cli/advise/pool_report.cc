#include "planner/cli/advise/pool_report.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/mesh/rank_places.h"
#include "planner/cli/strategy_list.h"
#include "planner/cli/text_table.h"
#include "planner/cli/thousands.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

double Ms(double ns) { return ns / kNanosecondsPerMillisecond; }

// Of the samples of a strategy's batches.
MeshSamples AllSamples(const PooledStrategy& pooled) {
  MeshSamples all;
  for (const MeshSamples& mesh : pooled.samples) {
    all.longest = std::max(all.longest, mesh.longest);
    all.samples += mesh.samples;
    all.tokens += mesh.tokens;
  }
  return all;
}

uint64_t TokensOfABatch(const PooledStrategy& pooled) {
  return pooled.batches.empty() ? 0 : AllSamples(pooled).tokens / pooled.batches.size();
}

double ShareOf(uint64_t part, uint64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

// "samples of 4,100 to 32,768 tokens (3.0% of all, 40.2% of the tokens)".
std::string MeshSamplesText(const MeshSamples& mesh, const MeshSamples& all) {
  if (mesh.samples == 0) return "no samples";
  return absl::StrCat("samples of ", WithThousands(static_cast<double>(mesh.shortest)), " to ",
                      WithThousands(static_cast<double>(mesh.longest)), " tokens (",
                      Percent(ShareOf(mesh.samples, all.samples)), " of all, ",
                      Percent(ShareOf(mesh.tokens, all.tokens)), " of the tokens)");
}

// Of each strategy of several meshes what each of them takes.
std::string MeshesText(const StrategyPool& pool) {
  std::string text;
  for (const PooledStrategy& pooled : pool.strategies) {
    if (pooled.strategy.meshes_size() == 1 || pooled.batches.empty()) continue;
    absl::StrAppend(&text, StrategyName(pooled.strategy), ":\n");
    for (int mesh = 0; mesh < pooled.strategy.meshes_size(); ++mesh) {
      absl::StrAppend(&text, "  ", MeshName(pooled.strategy.meshes(mesh).mesh()), ": ",
                      MeshSamplesText(pooled.samples[mesh], AllSamples(pooled)), "\n");
    }
  }
  return text;
}

nlohmann::ordered_json MeshesJson(const PooledStrategy& pooled) {
  nlohmann::ordered_json meshes = nlohmann::ordered_json::array();
  for (size_t mesh = 0; mesh < pooled.samples.size(); ++mesh) {
    const MeshSamples& samples = pooled.samples[mesh];
    meshes.push_back({{"mesh", MeshName(pooled.strategy.meshes(static_cast<int>(mesh)).mesh())},
                      {"samples", samples.samples},
                      {"tokens", samples.tokens},
                      {"shortest_sample", samples.shortest},
                      {"longest_sample", samples.longest}});
  }
  return meshes;
}

}  // namespace

std::string PoolFlag(const StrategyPool& pool) {
  return absl::StrCat("--strategies '", StrategyNames(StrategiesOf(pool)), "'");
}

std::string PoolText(const StrategyPool& pool) {
  TextTable table(
      {"strategy", "fastest for", "longest sample", "tokens a batch", "mean ms", "ms on the first alone"});
  for (const PooledStrategy& pooled : pool.strategies) {
    table.AddRow({StrategyName(pooled.strategy),
                  absl::StrCat(pooled.batches.size(), " of ", pool.batches, " batches"),
                  absl::StrCat(AllSamples(pooled).longest), absl::StrCat(TokensOfABatch(pooled)),
                  Fixed(Ms(pooled.mean_ns), 1), Fixed(Ms(pooled.alone_ns), 1)});
  }
  return absl::StrCat(table.ToString(), MeshesText(pool), "Mean iteration: ", Fixed(Ms(pool.pool_ns), 1),
                      " ms on whichever is fastest, ", Fixed(Ms(pool.alone_ns), 1),
                      " ms on the first alone.\n  ", PoolFlag(pool), "\n");
}

nlohmann::ordered_json PoolJson(const StrategyPool& pool) {
  nlohmann::ordered_json strategies = nlohmann::ordered_json::array();
  for (const PooledStrategy& pooled : pool.strategies) {
    strategies.push_back({{"strategy", StrategyName(pooled.strategy)},
                          {"batches", pooled.batches},
                          {"longest_sample", AllSamples(pooled).longest},
                          {"tokens_of_a_batch", TokensOfABatch(pooled)},
                          {"mean_ms", Ms(pooled.mean_ns)},
                          {"first_alone_ms", Ms(pooled.alone_ns)},
                          {"meshes", MeshesJson(pooled)}});
  }
  return {{"strategies", strategies},
          {"mean_ms", Ms(pool.pool_ns)},
          {"first_alone_ms", Ms(pool.alone_ns)},
          {"flag", PoolFlag(pool)}};
}

}  // namespace penstock::cli
