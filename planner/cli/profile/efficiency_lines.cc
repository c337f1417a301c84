#include "planner/cli/profile/efficiency_lines.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/cli/thousands.h"

namespace penstock::cli {
namespace {

void AddTable(const std::string& of, const v1::LayerTime& time, std::vector<EfficiencyTable>* tables) {
  if (time.efficiency().empty()) return;
  tables->push_back({of, {time.efficiency().begin(), time.efficiency().end()}});
}

std::string RanksOf(const v1::TensorCost& cost) {
  std::string ranks = absl::StrCat("over ", cost.degree(), " tensor ranks");
  if (cost.expert() > 1) absl::StrAppend(&ranks, " and ", cost.expert(), " expert ranks");
  return ranks;
}

}  // namespace

std::vector<EfficiencyTable> EfficiencyTablesOf(const v1::CostProfile& profile) {
  std::vector<EfficiencyTable> tables;
  for (const v1::LayerCost& layer : profile.layers()) {
    AddTable(absl::StrCat(layer.name(), ", forward"), layer.forward(), &tables);
    AddTable(absl::StrCat(layer.name(), ", gradients of inputs"), layer.backward_input(), &tables);
    AddTable(absl::StrCat(layer.name(), ", gradients of weights"), layer.backward_weight(), &tables);
    for (const v1::TensorCost& cost : layer.tensor())
      AddTable(absl::StrCat(layer.name(), " ", RanksOf(cost), ", forward"), cost.forward(), &tables);
  }
  AddTable("embedding", profile.embedding_forward(), &tables);
  return tables;
}

std::string EfficiencyLines(const v1::CostProfile& profile) {
  std::string lines;
  for (const EfficiencyTable& table : EfficiencyTablesOf(profile)) {
    std::vector<std::string> points;
    for (const v1::EfficiencyPoint& point : table.points)
      points.push_back(absl::StrFormat("%.3g at %s", point.factor(), WithThousands(point.tokens())));
    absl::StrAppend(&lines, lines.empty() ? "efficiency    " : "              ", table.of, ": a token takes ",
                    absl::StrJoin(points, ", "), " tokens\n");
  }
  return lines;
}

}  // namespace penstock::cli
