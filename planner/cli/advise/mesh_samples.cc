#include "planner/cli/advise/mesh_samples.h"

#include <algorithm>

#include "planner/core/contract/plan_of_mesh.h"

namespace penstock::cli {
namespace {

void Add(const MeshSamples& some, MeshSamples* sum) {
  if (some.samples == 0) return;
  sum->shortest = sum->samples == 0 ? some.shortest : std::min(sum->shortest, some.shortest);
  sum->longest = std::max(sum->longest, some.longest);
  sum->samples += some.samples;
  sum->tokens += some.tokens;
}

MeshSamples SampleAlone(const v1::Sample& sample) {
  const uint64_t tokens = uint64_t{sample.input_tokens()} + sample.target_tokens();
  return {.samples = 1, .tokens = tokens, .shortest = tokens, .longest = tokens};
}

}  // namespace

std::vector<MeshSamples> SamplesOfMeshes(const v1::Batch& batch, const v1::Plan& plan) {
  std::vector<MeshSamples> meshes(core::MeshCount(plan));
  for (size_t mesh = 0; mesh < meshes.size(); ++mesh) {
    const core::MeshRange range = core::RangeOfMesh(plan, static_cast<int>(mesh));
    for (int replica = range.first_replica; replica < range.first_replica + range.replicas; ++replica)
      for (const v1::MicroBatch& micro_batch : plan.replicas(replica).micro_batches())
        for (const uint32_t sample : micro_batch.samples())
          Add(SampleAlone(batch.samples(static_cast<int>(sample))), &meshes[mesh]);
  }
  return meshes;
}

void AddSamples(const std::vector<MeshSamples>& of_plan, std::vector<MeshSamples>* sum) {
  if (sum->empty()) sum->resize(of_plan.size());
  for (size_t mesh = 0; mesh < of_plan.size(); ++mesh) Add(of_plan[mesh], &(*sum)[mesh]);
}

}  // namespace penstock::cli
