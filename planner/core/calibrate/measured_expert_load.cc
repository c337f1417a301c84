#include "planner/core/calibrate/measured_expert_load.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace penstock::core {
namespace {

// Rows of the ranks that divide the experts of the same layers together.
class FullestRows {
 public:
  explicit FullestRows(int32_t ranks) : ranks_(ranks) {}

  // False: they do not have the same layers.
  bool Add(absl::Span<const v1::ReportIterationRequest* const> reports) {
    const int layers = reports.front()->expert_rows_size();
    for (const v1::ReportIterationRequest* report : reports)
      if (layers == 0 || report->expert_rows_size() != layers) return false;
    for (int layer = 0; layer < layers; ++layer) AddLayer(reports, layer);
    return true;
  }

  std::optional<ExpertLoad> Load() const {
    if (all_ <= 0) return std::nullopt;
    return ExpertLoad{.ranks = ranks_,
                      .fullest = std::clamp(fullest_ * ranks_ / all_, 1.0, static_cast<double>(ranks_))};
  }

 private:
  void AddLayer(absl::Span<const v1::ReportIterationRequest* const> reports, int layer) {
    double most = 0;
    for (const v1::ReportIterationRequest* report : reports) {
      const auto rows = static_cast<double>(report->expert_rows(layer));
      all_ += rows;
      most = std::max(most, rows);
    }
    fullest_ += most;
  }

  const int32_t ranks_;
  double all_ = 0;
  double fullest_ = 0;
};

// Whether a stage there has a layer with experts.
bool HasExperts(const PipelineShape& shape, int position) {
  for (size_t stage = 0; stage < shape.stages.size(); ++stage)
    if (shape.position_of_stage[stage] == position && shape.stages[stage].has(kDecoder)) return true;
  return false;
}

}  // namespace

std::optional<ExpertLoad> MeasuredExpertLoad(const Topology& topology,
                                             absl::Span<const ObservedIteration> iterations) {
  const GroupShape& group = topology.shape().group;
  if (!group.divides_experts()) return std::nullopt;
  FullestRows rows(group.expert);
  for (const ObservedIteration& iteration : iterations) {
    if (static_cast<int>(iteration.reports.size()) != topology.ranks()) return std::nullopt;
    for (int replica = 0; replica < topology.replicas(); ++replica) {
      for (int position = 0; position < topology.shape().positions; ++position) {
        if (!HasExperts(topology.shape(), position)) continue;
        for (int first = 0; first < group.ranks(); first += group.expert) {
          std::vector<const v1::ReportIterationRequest*> reports;
          for (int place = first; place < first + group.expert; ++place)
            reports.push_back(iteration.reports[topology.RankAt(replica, position, place)]);
          if (!rows.Add(reports)) return std::nullopt;
        }
      }
    }
  }
  return rows.Load();
}

}  // namespace penstock::core
