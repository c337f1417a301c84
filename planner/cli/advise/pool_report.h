// What `penstock advise --strategies` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/cli/advise/strategy_pool.h"

namespace penstock::cli {

// "--strategies 'pp 2 x dp 4; tp 8'".
std::string PoolFlag(const StrategyPool& pool);

// A pool, for whom each strategy is, and what it gains over its first strategy alone; with the flag of
// `penstock up` and `plan` that takes it; of meshes side by side which samples each of them has.
std::string PoolText(const StrategyPool& pool);
nlohmann::ordered_json PoolJson(const StrategyPool& pool);

}  // namespace penstock::cli
