// What `penstock advise --strategies` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/types/span.h"
#include "penstock/v1/plan.pb.h"
#include "planner/cli/advise/strategy_pool.h"

namespace penstock::cli {

// A pool, for whom each strategy is, and what it gains over its first strategy alone; with the flag of
// `penstock up` and `plan` that takes it. `batches` are those that it was proposed for.
std::string PoolText(const StrategyPool& pool, absl::Span<const v1::Batch> batches);
nlohmann::ordered_json PoolJson(const StrategyPool& pool, absl::Span<const v1::Batch> batches);

}  // namespace penstock::cli
