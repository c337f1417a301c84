#include "planner/core/feasibility/smallest_changes.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/mesh/mesh_ranks.h"
#include "planner/core/contract/rank_memory.h"
#include "planner/core/contract/total_layers.h"

namespace penstock::core {
namespace {

constexpr int64_t kMegabyte = 1'000'000;
// 1 EB; no accelerator has more.
constexpr int64_t kMostMegabytes = 1'000'000'000'000;
// Pipelines that are tried.
constexpr uint32_t kMostPipelines = 256;
// Context ranks that are tried.
constexpr uint32_t kMostContexts = 64;

// Input and target that are left of a sample.
template <typename Lengths>
void Cut(v1::Architecture architecture, uint32_t max_length, Lengths* sample) {
  sample->set_target_tokens(std::min(sample->target_tokens(), max_length));
  const uint32_t rest =
      architecture == v1::ARCHITECTURE_T5 ? max_length : max_length - sample->target_tokens();
  sample->set_input_tokens(std::min(sample->input_tokens(), rest));
}

uint32_t LongestSample(const v1::JobSpec& job, const v1::Batch& batch) {
  uint32_t longest = 0;
  for (const v1::Sample& sample : batch.samples()) {
    const uint32_t input = sample.input_tokens(), target = sample.target_tokens();
    longest = std::max(longest, job.model().architecture() == v1::ARCHITECTURE_T5 ? std::max(input, target)
                                                                                  : input + target);
  }
  return longest;
}

class Search {
 public:
  Search(const v1::JobSpec& job, const v1::Batch& batch, const Attempts& attempts)
      : job_(job), batch_(batch), attempts_(attempts) {}

  SmallestChanges Run() {
    SmallestChanges changes;
    changes.full_recompute = FullRecompute();
    changes.pipeline = Pipeline();
    changes.tensor = Tensor();
    changes.context = Context();
    changes.shard_optimizer_state = ShardOptimizerState();
    if (!batch_.samples().empty()) {
      changes.max_length = MaxLength();
      changes.micro_batch_size = Smaller(
          job_.planning().micro_batch_size(),
          [](uint32_t size, v1::JobSpec* job) { job->mutable_planning()->set_micro_batch_size(size); });
      changes.token_cap = Smaller(job_.planning().token_cap(), [](uint32_t cap, v1::JobSpec* job) {
        job->mutable_planning()->set_token_cap(cap);
      });
    }
    changes.memory_limit_bytes = MemoryLimit();
    changes.ranks_have_limits = !job_.planning().rank_memory_limits().empty();
    changes.stages_were_given = !job_.planning().layers_per_stage().empty();
    return changes;
  }

 private:
  bool Plans(const v1::JobSpec& job, const v1::Batch& batch) const {
    return attempts_.may_plan(job, batch) && attempts_.plans(job, batch);
  }

  bool FullRecompute() const {
    const v1::Recompute now = job_.planning().recompute();
    if (now != v1::RECOMPUTE_NONE && now != v1::RECOMPUTE_SELECTIVE) return false;  // AUTO has tried
    v1::JobSpec job = job_;
    job.mutable_planning()->set_recompute(v1::RECOMPUTE_FULL);
    return Plans(job, batch_);
  }

  std::optional<uint32_t> Pipeline() const {
    v1::JobSpec job = job_;
    job.mutable_planning()->clear_layers_per_stage();
    job.mutable_planning()->clear_rank_of_stage();
    const bool given = !job_.planning().layers_per_stage().empty();
    const uint32_t least = job_.mesh().pipeline() + (given ? 0 : 1);
    const uint32_t most = std::min(TotalLayers(job.model()), job.mesh().pipeline() + kMostPipelines);
    for (uint32_t pipeline = least; pipeline <= most; ++pipeline) {
      job.mutable_mesh()->set_pipeline(pipeline);
      if (Plans(job, batch_)) return pipeline;
    }
    return std::nullopt;
  }

  std::optional<uint32_t> Tensor() const {
    if (job_.profile().layers().empty()) return std::nullopt;
    v1::JobSpec job = job_;
    for (const v1::TensorCost& cost : job_.profile().layers(0).tensor()) {
      if (cost.degree() <= TensorRanks(job_.mesh())) continue;
      job.mutable_mesh()->set_tensor(cost.degree());
      if (Plans(job, batch_)) return cost.degree();
    }
    return std::nullopt;
  }

  std::optional<uint32_t> Context() const {
    v1::JobSpec job = job_;
    for (uint32_t context = 2 * ContextRanks(job_.mesh()); context <= kMostContexts; context *= 2) {
      job.mutable_mesh()->set_context(context);
      if (Plans(job, batch_)) return context;
    }
    return std::nullopt;
  }

  bool ShardOptimizerState() const {
    const uint64_t holders = uint64_t{job_.mesh().data()} * ContextRanks(job_.mesh());
    if (job_.planning().shard_optimizer_state() || holders < 2) return false;
    v1::JobSpec job = job_;
    job.mutable_planning()->set_shard_optimizer_state(true);
    return Plans(job, batch_);
  }

  // The largest value for which `ask` holds, between `least` (which is asked about) and `most` (which is
  // known not to hold); more needs more memory.
  template <typename Ask>
  static std::optional<uint32_t> Largest(uint32_t least, uint32_t most, const Ask& ask) {
    if (least >= most || !ask(least)) return std::nullopt;
    while (most - least > 1) {
      const uint32_t middle = least + (most - least) / 2;
      (ask(middle) ? least : most) = middle;
    }
    return least;
  }

  // The cheap question first, over the whole range; the other mostly has the same answer.
  template <typename Change>
  std::optional<uint32_t> LargestThatPlans(uint32_t most, const Change& change) const {
    const auto ask = [&](const Attempts::Question& question) {
      return [&, question](uint32_t value) {
        v1::JobSpec job = job_;
        v1::Batch batch = batch_;
        change(value, &job, &batch);
        return question(job, batch);
      };
    };
    const auto plans = ask(attempts_.plans);
    const std::optional<uint32_t> may = Largest(1, most, ask(attempts_.may_plan));
    if (!may.has_value() || plans(*may)) return may;
    return Largest(1, *may, plans);
  }

  std::optional<uint32_t> MaxLength() const {
    return LargestThatPlans(LongestSample(job_, batch_), CutToLength);
  }

  template <typename Set>
  std::optional<uint32_t> Smaller(uint32_t now, const Set& set) const {
    if (now == 0) return std::nullopt;  // searched
    return LargestThatPlans(now, [&](uint32_t value, v1::JobSpec* job, v1::Batch*) { set(value, job); });
  }

  bool PlansWithin(int64_t megabytes, const Attempts::Question& question) const {
    v1::JobSpec job = job_;
    v1::PlanningOptions& planning = *job.mutable_planning();
    const int64_t bytes = megabytes * kMegabyte;
    const bool only_common = planning.rank_memory_limits().empty();
    planning.set_memory_limit_bytes(only_common ? bytes : std::max(bytes, CommonMemoryLimit(job_)));
    for (v1::RankMemoryLimit& limit : *planning.mutable_rank_memory_limits())
      limit.set_bytes(std::max(limit.bytes(), bytes));
    return question(job, batch_);
  }

  // The least above `short_of`, which is too little.
  std::optional<int64_t> LeastMegabytes(int64_t short_of, const Attempts::Question& question) const {
    int64_t enough = short_of + 1;
    for (; !PlansWithin(enough, question); enough *= 2) {
      short_of = enough;
      if (enough > kMostMegabytes) return std::nullopt;
    }
    while (enough - short_of > 1) {
      const int64_t middle = short_of + (enough - short_of) / 2;
      (PlansWithin(middle, question) ? enough : short_of) = middle;
    }
    return enough;
  }

  std::optional<int64_t> MemoryLimit() const {
    int64_t now = CommonMemoryLimit(job_);
    for (const v1::RankMemoryLimit& limit : job_.planning().rank_memory_limits())
      now = std::min(now, limit.bytes());
    std::optional<int64_t> megabytes = LeastMegabytes(now / kMegabyte, attempts_.may_plan);
    if (!megabytes.has_value()) return std::nullopt;
    if (!PlansWithin(*megabytes, attempts_.plans)) megabytes = LeastMegabytes(*megabytes, attempts_.plans);
    if (!megabytes.has_value()) return std::nullopt;
    return *megabytes * kMegabyte;
  }

  const v1::JobSpec& job_;
  const v1::Batch& batch_;
  const Attempts& attempts_;
};

}  // namespace

void CutToLength(uint32_t max_length, v1::JobSpec* job, v1::Batch* batch) {
  const v1::Architecture architecture = job->model().architecture();
  for (v1::Sample& sample : *batch->mutable_samples()) Cut(architecture, max_length, &sample);
  for (v1::SampleLengths& sample : *job->mutable_planning()->mutable_typical_samples())
    Cut(architecture, max_length, &sample);
}

SmallestChanges FindSmallestChanges(const v1::JobSpec& job, const v1::Batch& batch, const Attempts& attempts,
                                    StopToken stop) {
  // Nothing that is asked then costs anything, and every search ends soon when all answers are no.
  const auto unless_stopped = [stop](const Attempts::Question& question) {
    return [stop, &question](const v1::JobSpec& changed_job, const v1::Batch& changed_batch) {
      return !stop.stopped() && question(changed_job, changed_batch);
    };
  };
  const Attempts stoppable = {.may_plan = unless_stopped(attempts.may_plan),
                              .plans = unless_stopped(attempts.plans)};
  return Search(job, batch, stoppable).Run();
}

std::string Describe(const SmallestChanges& changes) {
  std::vector<std::string> fits;
  if (changes.full_recompute) fits.emplace_back("job.planning.recompute full");
  if (changes.pipeline.has_value()) {
    fits.push_back(absl::StrCat("job.mesh.pipeline ", *changes.pipeline,
                                changes.stages_were_given ? " without job.planning.layers_per_stage" : ""));
  }
  if (changes.tensor.has_value()) fits.push_back(absl::StrCat("job.mesh.tensor ", *changes.tensor));
  if (changes.context.has_value()) fits.push_back(absl::StrCat("job.mesh.context ", *changes.context));
  if (changes.shard_optimizer_state) fits.emplace_back("job.planning.shard_optimizer_state");
  if (changes.max_length.has_value())
    fits.push_back(absl::StrCat("a maximum length of ", *changes.max_length));
  if (changes.micro_batch_size.has_value()) {
    fits.push_back(absl::StrCat("job.planning.micro_batch_size ", *changes.micro_batch_size));
  }
  if (changes.token_cap.has_value())
    fits.push_back(absl::StrCat("job.planning.token_cap ", *changes.token_cap));
  if (changes.memory_limit_bytes.has_value()) {
    fits.push_back(absl::StrCat("job.planning.memory_limit_bytes ", *changes.memory_limit_bytes,
                                changes.ranks_have_limits
                                    ? " or more on every rank, those of job.planning.rank_memory_limits too"
                                    : ""));
  }
  if (fits.empty()) return "";
  return absl::StrCat(fits.size() == 1 ? "; this fits: " : "; any of these fits: ",
                      absl::StrJoin(fits, "; "));
}

}  // namespace penstock::core
