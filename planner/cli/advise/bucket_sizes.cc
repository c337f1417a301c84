#include "planner/cli/advise/bucket_sizes.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/cli/local_planning.h"
#include "planner/cli/planning_flags.h"
#include "planner/core/planner.h"
#include "planner/core/replay/expected_time.h"

namespace penstock::cli {
namespace {

// Sizes that are tried, and that of one bucket for all.
constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr uint64_t kBucketBytes[] = {kMib, 4 * kMib, 16 * kMib, 64 * kMib, 256 * kMib};
constexpr uint64_t kOneBucketBytes = kMib << 20;
// Where the job names none (job.proto, PlanningOptions.gradient_bucket_bytes).
constexpr uint64_t kUsualBucketBytes = 4 * kMib;

// What a rank sums at most: of all layers, in the type of the sums.
double MostGradientBytes(const v1::JobSpec& job) {
  const v1::ModelSpec& model = job.model();
  double bytes = 2 * job.profile().embedding_parameter_bytes();
  for (const v1::LayerCost& layer : job.profile().layers()) {
    const uint32_t layers = layer.name() == "head"      ? 1
                            : layer.name() == "encoder" ? model.encoder_layers()
                            : layer.name() == "decoder" ? model.decoder_layers()
                                                        : model.layers();
    bytes += layers * layer.parameter_bytes();
  }
  return (model.dtype() == v1::DATA_TYPE_BFLOAT16 ? 2 : 1) * bytes / TensorRanks(job.mesh());
}

// Plans a job with buckets of one size or another.
class SizedPlans {
 public:
  SizedPlans(const v1::JobSpec& job, const v1::Topology& stages, absl::Span<const v1::Batch> batches,
             const core::RunTasks& run_tasks)
      : job_(job), stages_(stages), batches_(batches), run_tasks_(run_tasks) {}

  // Of the first `count` batches; those that were planned before are not planned again.
  absl::StatusOr<int64_t> PlannedNs(uint64_t bytes, size_t count) {
    PENSTOCK_RETURN_IF_ERROR(Prepare(bytes));
    Size& size = sizes_[bytes];
    for (; size.batches < count; ++size.batches) {
      PENSTOCK_ASSIGN_OR_RETURN(const v1::Plan plan,
                                PlanAndCheck(*size.planner, batches_[size.batches], run_tasks_));
      size.planned_ns += core::ExpectedNs(plan.predicted());
    }
    return size.planned_ns;
  }

  // Of sizes whose buckets are the same on all stages one alone is kept: `now` if it is among them.
  absl::StatusOr<std::vector<uint64_t>> Distinct(const std::vector<uint64_t>& sizes, uint64_t now) {
    PENSTOCK_RETURN_IF_ERROR(Prepare(now));
    std::set<std::vector<int64_t>> known = {sizes_[now].BucketsOfStages()};
    std::vector<uint64_t> distinct;
    for (const uint64_t bytes : sizes) {
      PENSTOCK_RETURN_IF_ERROR(Prepare(bytes));
      if (bytes == now || known.insert(sizes_[bytes].BucketsOfStages()).second) distinct.push_back(bytes);
    }
    return distinct;
  }

 private:
  struct Size {
    std::unique_ptr<core::Planner> planner;
    size_t batches = 0;
    int64_t planned_ns = 0;

    std::vector<int64_t> BucketsOfStages() const {
      const core::CostModel& costs = planner->costs();
      std::vector<int64_t> buckets;
      for (int stage = 0; stage < costs.stages(); ++stage)
        buckets.push_back(costs.ReduceTimes(stage, /*tensor=*/0).buckets);
      return buckets;
    }
  };

  absl::Status Prepare(uint64_t bytes) {
    Size& size = sizes_[bytes];
    if (size.planner != nullptr) return absl::OkStatus();
    v1::JobSpec sized = job_;
    sized.mutable_planning()->set_gradient_bucket_bytes(bytes);
    PENSTOCK_ASSIGN_OR_RETURN(size.planner, core::Planner::Create(sized, core::Planner::Explain::kCauseAlone,
                                                                  run_tasks_, {}, &stages_));
    return absl::OkStatus();
  }

  const v1::JobSpec& job_;
  const v1::Topology& stages_;
  const absl::Span<const v1::Batch> batches_;
  const core::RunTasks& run_tasks_;
  std::map<uint64_t, Size> sizes_;
};

}  // namespace

bool SumsGradients(const v1::JobSpec& job) {
  return job.mesh().data() * ContextRanks(job.mesh()) > 1 && !job.planning().parameter_shares();
}

uint64_t BucketBytesOf(const v1::JobSpec& job) {
  const uint64_t named = job.planning().gradient_bucket_bytes();
  return named == 0 ? kUsualBucketBytes : named;
}

std::vector<uint64_t> OtherBucketSizes(const v1::JobSpec& job) {
  const uint64_t now = BucketBytesOf(job);
  const double most = MostGradientBytes(job);
  std::vector<uint64_t> sizes;
  for (const uint64_t bytes : kBucketBytes)
    if (bytes != now && static_cast<double>(bytes) < most) sizes.push_back(bytes);
  if (static_cast<double>(now) < most) sizes.push_back(kOneBucketBytes);
  return sizes;
}

std::string BucketName(uint64_t bytes) {
  return bytes == kOneBucketBytes ? "one" : absl::StrCat(GradientBucketMib(bytes), " MiB");
}

absl::StatusOr<uint64_t> WalkToFastest(absl::Span<const uint64_t> sizes, uint64_t start,
                                       const std::function<absl::StatusOr<int64_t>(uint64_t)>& time_of) {
  const auto first = static_cast<int>(std::ranges::find(sizes, start) - sizes.begin());
  PENSTOCK_ASSIGN_OR_RETURN(int64_t least_ns, time_of(start));
  int best = first;
  for (const int step : {1, -1}) {
    for (int next = best + step; next >= 0 && next < static_cast<int>(sizes.size()); next += step) {
      PENSTOCK_ASSIGN_OR_RETURN(const int64_t ns, time_of(sizes[static_cast<size_t>(next)]));
      if (ns > least_ns) break;
      // Sizes of as many buckets take the same: those beyond may not.
      if (ns < least_ns) best = next;
      least_ns = ns;
    }
    // Below it are those that it came from.
    if (best != first) break;
  }
  return sizes[static_cast<size_t>(best)];
}

absl::StatusOr<std::optional<SizedBuckets>> FastestBuckets(const v1::JobSpec& job, const v1::Topology& stages,
                                                           absl::Span<const v1::Batch> batches,
                                                           const core::RunTasks& run_tasks,
                                                           std::optional<int64_t> before_ns) {
  if (!SumsGradients(job) || job.profile().cluster().exchange_overlap() <= 0) return std::nullopt;
  const uint64_t now = BucketBytesOf(job);
  std::vector<uint64_t> sizes = OtherBucketSizes(job);
  if (sizes.empty()) return std::nullopt;
  sizes.insert(std::ranges::lower_bound(sizes, now), now);
  SizedPlans plans(job, stages, batches, run_tasks);
  PENSTOCK_ASSIGN_OR_RETURN(sizes, plans.Distinct(sizes, now));
  SizedBuckets fastest = {.bytes = now};
  if (sizes.size() > 1) {
    PENSTOCK_ASSIGN_OR_RETURN(
        fastest.bytes, WalkToFastest(sizes, now, [&](uint64_t bytes) { return plans.PlannedNs(bytes, 1); }));
  }
  if (!before_ns.has_value()) {
    PENSTOCK_ASSIGN_OR_RETURN(before_ns, plans.PlannedNs(now, batches.size()));
  }
  const SizedBuckets same = {.bytes = now, .planned_ns = *before_ns, .before_ns = *before_ns};
  if (fastest.bytes == now) return same;
  fastest.before_ns = *before_ns;
  PENSTOCK_ASSIGN_OR_RETURN(fastest.planned_ns, plans.PlannedNs(fastest.bytes, batches.size()));
  // The other batches may say otherwise.
  return fastest.planned_ns > fastest.before_ns ? same : fastest;
}

}  // namespace penstock::cli
