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

}  // namespace

void CheckCoverage(const PlanIndex& index, Report& report) {
  std::vector<int> uses(index.batch().samples_size(), 0);
  for (int replica = 0; replica < index.replicas(); ++replica) {
    CountSamples(index.plan().replicas(replica), replica, uses, report);
    if (index.MicroBatches(replica) == 0 && index.batch().samples_size() >= index.replicas())
      report.Add(kCoverage,
                 absl::StrCat("replica ", replica, " has no micro-batch, although ",
                              index.batch().samples_size(), " samples are enough for all replicas"));
  }
  for (size_t sample = 0; sample < uses.size(); ++sample)
    if (uses[sample] == 0) report.Add(kCoverage, absl::StrCat("sample ", sample, " is in no micro-batch"));
}

}  // namespace penstock::core::verify
