// The course of a job's iterations in as many points as a chart has room for.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// Columns of equal length, a point being equally many iterations in a row (the last one fewer, perhaps):
// "iteration" (the last of the point), means of "loss", "planned_ahead", "predicted_ms", "measured_ms",
// "padding_efficiency" and "bubble", "tokens_per_second", and "iterations_per_point". At most `most_points`.
nlohmann::ordered_json HistoryAsJson(const std::vector<v1::IterationSummary>& iterations, size_t most_points);

}  // namespace penstock
