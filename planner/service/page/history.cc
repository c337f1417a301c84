#include "planner/service/page/history.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/types/span.h"
#include "common/ratio/ratio.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;
using Summaries = absl::Span<const v1::IterationSummary>;

constexpr double kNanosecondsPerMillisecond = 1e6;
constexpr double kNanosecondsPerSecond = 1e9;

template <typename Value>
double Sum(Summaries iterations, Value value) {
  double sum = 0;
  for (const v1::IterationSummary& one : iterations) sum += static_cast<double>(value(one));
  return sum;
}

void AddPoint(Summaries iterations, Json& columns) {
  using Summary = v1::IterationSummary;
  const auto count = static_cast<double>(iterations.size());
  const double measured_ns = Sum(iterations, [](const Summary& one) { return one.measured_ns(); });
  const double predicted_ns = Sum(iterations, [](const Summary& one) { return one.predicted_ns(); });
  const double real_tokens = Sum(iterations, [](const Summary& one) { return one.real_tokens(); });
  const double computed_tokens = Sum(iterations, [](const Summary& one) { return one.computed_tokens(); });
  columns["iteration"].push_back(iterations.back().iteration());
  columns["loss"].push_back(Sum(iterations, [](const Summary& one) { return one.loss(); }) / count);
  columns["tokens_per_second"].push_back(Ratio(real_tokens * kNanosecondsPerSecond, measured_ns));
  columns["planned_ahead"].push_back(Sum(iterations, [](const Summary& one) { return one.planned_ahead(); }) /
                                     count);
  columns["predicted_ms"].push_back(predicted_ns / kNanosecondsPerMillisecond / count);
  columns["measured_ms"].push_back(measured_ns / kNanosecondsPerMillisecond / count);
  columns["padding_efficiency"].push_back(Ratio(real_tokens, computed_tokens));
  columns["bubble"].push_back(Sum(iterations, [](const Summary& one) { return one.bubble(); }) / count);
}

}  // namespace

Json HistoryAsJson(const std::vector<v1::IterationSummary>& iterations, size_t most_points) {
  const size_t per_point = std::max<size_t>(1, (iterations.size() + most_points - 1) / most_points);
  Json columns = {{"iterations_per_point", per_point}};
  for (const char* name : {"iteration", "loss", "tokens_per_second", "planned_ahead", "predicted_ms",
                           "measured_ms", "padding_efficiency", "bubble"}) {
    columns[name] = Json::array();
  }
  for (size_t first = 0; first < iterations.size(); first += per_point)
    AddPoint(Summaries(iterations).subspan(first, per_point), columns);
  return columns;
}

}  // namespace penstock
