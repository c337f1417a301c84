#include "planner/core/cost/analytic_tables.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/analytic_json.h"
#include "planner/core/cost/analytic_units.h"

namespace penstock::core {
namespace {

// The files round to five significant digits.
constexpr double kTolerance = 1e-4;

// The rectangles of the grid in the order of a table with these axes.
std::vector<TokenSums> GridShapes(const v1::Grid& grid, bool source, bool target) {
  const std::vector<uint32_t> none = {0};
  const auto axis = [&](bool used, const google::protobuf::RepeatedField<uint32_t>& values) {
    return used ? std::vector<uint32_t>(values.begin(), values.end()) : none;
  };
  std::vector<TokenSums> shapes;
  for (uint32_t rows : grid.micro_batch_size()) {
    for (uint32_t source_length : axis(source, grid.source_length())) {
      for (uint32_t target_length : axis(target, grid.target_length())) {
        shapes.push_back(PaddedSums(static_cast<int32_t>(rows), static_cast<int32_t>(source_length),
                                    static_cast<int32_t>(target_length)));
      }
    }
  }
  return shapes;
}

absl::Status Disagree(const JsonPath& path, const TokenSums& shape, double table, double formula) {
  return absl::InvalidArgumentError(absl::StrCat(path.front(), ".", path.back(), ": at [", shape.rows, ", ",
                                                 shape.source_length, ", ", shape.target_length,
                                                 "] the grid says ", table, ", the closed form ", formula));
}

// Reads one table and compares it with `formula`, a function of the shape, in the table's unit.
template <typename Function>
absl::StatusOr<std::vector<double>> CheckedTable(const nlohmann::json& root, const JsonPath& path,
                                                 const std::vector<TokenSums>& shapes, Function formula) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<double> values, ValuesAt(root, path));
  if (values.size() != shapes.size()) {
    return absl::InvalidArgumentError(absl::StrCat(path.front(), ".", path.back(), ": ", values.size(),
                                                   " values for ", shapes.size(), " points of the grid"));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = formula(shapes[i]);
    if (std::abs(values[i] - expected) > kTolerance * expected)
      return Disagree(path, shapes[i], values[i], expected);
  }
  return values;
}

// Where the file keeps the tables of a layer.
struct TableReader {
  const nlohmann::json& root;
  const v1::LayerCost& layer;
  std::vector<TokenSums> shapes;

  absl::Status ReadTime(const JsonPath& path, double ratio, v1::Table* table) const {
    const LayerTime time = LayerTimeFromProto(layer.forward());
    const auto formula = [&](const TokenSums& shape) { return time(shape) * ratio / kNsPerMs; };
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> values, CheckedTable(root, path, shapes, formula));
    table->mutable_values()->Add(values.begin(), values.end());
    return absl::OkStatus();
  }

  absl::Status CheckBytes(const JsonPath& path, const v1::LayerBytes& bytes) const {
    const LayerBytes linear = LayerBytesFromProto(bytes);
    const auto formula = [&](const TokenSums& shape) {
      return (linear.source_token_bytes * shape.source + linear.target_token_bytes * shape.target) /
             kBytesPerMb;
    };
    return CheckedTable(root, path, shapes, formula).status();
  }
};

absl::Status ReadLayer(const nlohmann::json& root, const v1::Grid& grid, v1::LayerCost* layer) {
  const std::string& name = layer->name();
  const bool source = name == "encoder" || name == "decoder";
  const v1::LayerCost formulas = *layer;
  const TableReader reader{root, formulas, GridShapes(grid, source, name != "encoder")};
  PENSTOCK_RETURN_IF_ERROR(
      reader.ReadTime({"grid", absl::StrCat(name, "_forward_ms")}, 1, layer->mutable_forward_ms()));
  const std::string backward = absl::StrCat(name, "_backward_ms");
  if (name == "head") {
    return reader.ReadTime({"grid", backward}, formulas.backward_ratio_none(),
                           layer->mutable_backward_none_ms());
  }
  PENSTOCK_RETURN_IF_ERROR(reader.ReadTime({"grid", backward, "none"}, formulas.backward_ratio_none(),
                                           layer->mutable_backward_none_ms()));
  PENSTOCK_RETURN_IF_ERROR(reader.ReadTime({"grid", backward, "selective"},
                                           formulas.backward_ratio_selective(),
                                           layer->mutable_backward_selective_ms()));
  PENSTOCK_RETURN_IF_ERROR(reader.ReadTime({"grid", backward, "full"}, formulas.backward_ratio_full(),
                                           layer->mutable_backward_full_ms()));
  const std::string stored = absl::StrCat(name, "_stored_mb");
  PENSTOCK_RETURN_IF_ERROR(reader.CheckBytes({"grid", stored, "none"}, formulas.stored_none()));
  PENSTOCK_RETURN_IF_ERROR(reader.CheckBytes({"grid", stored, "selective"}, formulas.stored_selective()));
  PENSTOCK_RETURN_IF_ERROR(reader.CheckBytes({"grid", stored, "full"}, formulas.stored_full()));
  return reader.CheckBytes({"grid", absl::StrCat(name, "_peak_mb")}, formulas.peak());
}

}  // namespace

absl::Status ReadAnalyticTables(const nlohmann::json& root, v1::CostProfile* profile) {
  for (v1::LayerCost& layer : *profile->mutable_layers()) {
    PENSTOCK_RETURN_IF_ERROR(ReadLayer(root, profile->grid(), &layer));
  }
  return absl::OkStatus();
}

}  // namespace penstock::core
