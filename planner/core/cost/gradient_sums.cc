// What of a CostModel is about sums of gradients.
#include <algorithm>
#include <cstdint>

#include "planner/core/cost/ceil_divide.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/cost/reduce_time.h"

namespace penstock::core {

int64_t CostModel::HalfOfBucketNs(int stage, int tensor) const {
  const int64_t buckets = buckets_[stage];
  const int64_t common =
      RingNs(CeilDivide(common_bytes_[stage], buckets), topology_.GradientGroup(stage, tensor));
  if (!group().divides_experts() || !this->stage(stage).has(kDecoder)) return common;
  const int64_t of_experts = CeilDivide(expert_bytes_[stage], buckets);
  int64_t experts = 0;
  for (int expert = tensor; expert < group().expert; expert += group().tensor)
    experts = std::max(experts, RingNs(of_experts, topology_.ExpertGradientGroup(stage, expert)));
  return common + experts;
}

int64_t CostModel::HalfOfAllReduceNs(int stage, int tensor) const {
  return ReduceTime{.bucket_ns = HalfOfBucketNs(stage, tensor), .buckets = buckets_[stage]}.WholeNs();
}

ReduceTime CostModel::ReduceTimes(int stage, int tensor) const {
  if (has_shares_) return {};
  return {.bucket_ns = (divided_state_ ? 1 : 2) * HalfOfBucketNs(stage, tensor),
          .buckets = buckets_[stage],
          .overlap = profile_.cluster.exchange_overlap};
}

int64_t CostModel::LeastReduceNs(int stage) const {
  int64_t longest = 0;
  for (int tensor = 0; tensor < group().tensor; ++tensor)
    longest = std::max(longest, ReduceTimes(stage, tensor).LeastLeftNs());
  return longest;
}

int64_t CostModel::BucketsOf(const Job& job, int stage) const {
  const int64_t layers = this->stage(stage).layers();
  if (job.gradient_bucket_bytes == 0 || layers == 0) return 1;
  // A layer's experts, which other ranks have, are a bucket by themselves.
  if (expert_bytes_[stage] > 0) return layers;
  // Of bfloat16 in float32.
  const int64_t gradient_bytes = common_bytes_[stage] * (job.bytes_per_element == 2 ? 2 : 1);
  if (gradient_bytes == 0) return 1;
  const int64_t layers_of_bucket = CeilDivide(job.gradient_bucket_bytes * layers, gradient_bytes);
  return CeilDivide(layers, layers_of_bucket);
}

}  // namespace penstock::core
