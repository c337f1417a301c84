// What `penstock advise` prints.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "planner/cli/advise/tournament.h"

namespace penstock::cli {

// The `top` fastest as a table, how to plan with the first of them, and a line for each reason why others do
// not fit.
std::string AdviceText(const TournamentResult& result, size_t top, size_t batches);

// {batches, tried, advice: [...], infeasible: [...]}; advice has the same fields as the table's columns.
nlohmann::ordered_json AdviceJson(const TournamentResult& result, size_t top, size_t batches);

}  // namespace penstock::cli
