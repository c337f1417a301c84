// Rule 1: every sample of the batch in exactly one micro-batch of one replica.
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

void CountSamples(const v1::Replica& replica, int number, std::vector<int>& uses, Report& report) {
  for (int m = 0; m < replica.micro_batches_size(); ++m) {
    const std::string name = absl::StrCat("replica ", number, ", micro-batch ", m);
    if (replica.micro_batches(m).samples_size() == 0)
      report.Add(kCoverage, absl::StrCat(name, " holds no sample"));
    for (uint32_t sample : replica.micro_batches(m).samples()) {
      if (sample >= uses.size())
        report.Add(kCoverage,
                   absl::StrCat(name, " holds sample ", sample, ", but the batch has ", uses.size()));
      else if (++uses[sample] == 2)
        report.Add(kCoverage, absl::StrCat(name, " holds sample ", sample, " a second time"));
    }
  }
}

// Samples of all replicas of the mesh that the replica is of.
int64_t SamplesOfMesh(const PlanIndex& index, int replica) {
  int64_t samples = 0;
  const int first = index.MeshOf(replica).first_replica;
  for (int other = first; other < index.replicas() && index.MeshOf(other).first_replica == first; ++other)
    for (const v1::MicroBatch& micro_batch : index.plan().replicas(other).micro_batches())
      samples += micro_batch.samples_size();
  return samples;
}

}  // namespace

void CheckCoverage(const PlanIndex& index, Report& report) {
  std::vector<int> uses(index.batch().samples_size(), 0);
  for (int replica = 0; replica < index.replicas(); ++replica) {
    CountSamples(index.plan().replicas(replica), replica, uses, report);
    // A replica whose ranks have less memory may have room for none of the samples.
    if (index.MicroBatches(replica) > 0 || index.plan().options().rank_memory_limits_size() > 0) continue;
    const int64_t samples = SamplesOfMesh(index, replica);
    if (samples >= index.MeshOf(replica).mesh->data())
      report.Add(kCoverage, absl::StrCat("replica ", replica, " has no micro-batch, although ", samples,
                                         " samples are enough for all replicas",
                                         index.plan().meshes().empty() ? "" : " of its mesh"));
  }
  for (size_t sample = 0; sample < uses.size(); ++sample)
    if (uses[sample] == 0) report.Add(kCoverage, absl::StrCat("sample ", sample, " is in no micro-batch"));
}

}  // namespace penstock::core::verify
