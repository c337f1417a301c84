#include "planner/cli/rank_places.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock::cli {
namespace {

// Samples of row `row`: one, but for rows of samples end to end.
uint64_t SamplesOfRow(const v1::MicroBatch& micro_batch, int row) {
  if (row + 1 >= micro_batch.row_samples_size()) return 1;
  const uint32_t begin = micro_batch.row_samples(row), end = micro_batch.row_samples(row + 1);
  return end > begin ? end - begin : 0;
}

}  // namespace

uint32_t TensorRanks(const v1::Mesh& mesh) { return std::max(1U, mesh.tensor()); }

uint32_t ContextRanks(const v1::Mesh& mesh) { return std::max(1U, mesh.context()); }

bool HasGroups(const v1::Mesh& mesh) { return TensorRanks(mesh) > 1 || ContextRanks(mesh) > 1; }

std::vector<GroupPlace> PlacesOf(const v1::Plan& plan) {
  std::vector<GroupPlace> places(plan.programs_size());
  const uint32_t tensor = TensorRanks(plan.mesh());
  for (const v1::ReplicaTopology& replica : plan.topology().replicas()) {
    for (const v1::StageTopology& stage : replica.stages()) {
      for (int place = 0; place < stage.ranks_size(); ++place) {
        if (stage.ranks(place) >= places.size()) continue;
        const auto index = static_cast<uint32_t>(place);
        places[stage.ranks(place)] = {.context = index / tensor, .tensor = index % tensor};
      }
    }
  }
  return places;
}

std::string PlaceName(const v1::Mesh& mesh, const GroupPlace& place) {
  std::vector<std::string> parts;
  if (ContextRanks(mesh) > 1) parts.push_back(absl::StrCat("c", place.context));
  if (TensorRanks(mesh) > 1) parts.push_back(absl::StrCat("t", place.tensor));
  return absl::StrJoin(parts, " ");
}

std::string MeshName(const v1::Mesh& mesh) {
  std::string name = absl::StrCat("pp ", mesh.pipeline(), " x dp ", mesh.data());
  if (ContextRanks(mesh) > 1) absl::StrAppend(&name, " x cp ", mesh.context());
  if (TensorRanks(mesh) > 1) absl::StrAppend(&name, " x tp ", mesh.tensor());
  return name;
}

std::vector<SpanCount> CountSpans(const v1::Plan& plan) {
  std::map<uint32_t, uint64_t> samples;
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
      for (int row = 0; row < micro_batch.span_ranks_size(); ++row)
        samples[micro_batch.span_ranks(row)] += SamplesOfRow(micro_batch, row);
    }
  }
  std::vector<SpanCount> spans;
  for (const auto& [ranks, count] : samples) spans.push_back({.ranks = ranks, .samples = count});
  return spans;
}

std::string SpanText(const std::vector<SpanCount>& spans) {
  return absl::StrJoin(spans, ", ", [](std::string* text, const SpanCount& span) {
    absl::StrAppend(text, span.samples, " x ", span.ranks);
  });
}

}  // namespace penstock::cli
