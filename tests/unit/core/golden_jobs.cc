#include "tests/unit/core/golden_jobs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/process/sanitized.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

v1::Batch ManySamples(uint32_t samples, uint64_t seed) {
  Random random(seed);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < samples; ++i) {
    const uint32_t scale = random.Chance(15) ? 1500 : 150;
    const uint32_t input = random.Range(1, scale);
    const uint32_t target = random.Range(1, scale);
    lengths.emplace_back(input, target);
  }
  return MakeBatch(lengths);
}

GoldenJob Large(const std::string& name, v1::JobSpec job, uint32_t samples) {
  // Odd figures, so that sums of floating-point numbers are inexact.
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    layer.mutable_forward()->set_target_token_ns(layer.forward().target_token_ns() * 1.0371);
    layer.mutable_forward()->set_source_token_ns(layer.forward().source_token_ns() * 0.9173);
    layer.mutable_forward()->set_half_efficiency_tokens(37.3);
    layer.set_backward_ratio_none(2.0131);
  }
  return {name, {std::move(job), ManySamples(samples, samples)}};
}

// So many that the search does not hold all of its starts side by side: nearly each sample is a micro-batch
// in a dozen of them.
GoldenJob ManyShortSamples(const std::string& name, v1::JobSpec job) {
  constexpr uint32_t kSamples = 6000;
  GoldenJob large = Large(name, std::move(job), 1);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (uint32_t i = 0; i < kSamples; ++i) lengths.emplace_back(0, 16 + i % 5);
  large.given.batch = MakeBatch(lengths);
  large.given.job.mutable_planning()->set_effort(v1::EFFORT_FAST);
  return large;
}

v1::JobSpec Scheduled(v1::JobSpec job, v1::Schedule schedule) {
  job.mutable_planning()->set_schedule(schedule);
  return job;
}

// Four stages, dealt to two ranks in turn.
v1::JobSpec TwoStagesARank(v1::JobSpec job) {
  for (const uint32_t rank : {0, 1, 0, 1}) {
    job.mutable_planning()->add_layers_per_stage(2);
    job.mutable_planning()->add_rank_of_stage(rank);
  }
  return job;
}

v1::JobSpec Thorough(v1::JobSpec job) {
  job.mutable_planning()->set_effort(v1::EFFORT_THOROUGH);
  return job;
}

// Stage groups of `tensor` x `context` ranks.
v1::JobSpec Grouped(v1::JobSpec job, uint32_t tensor, uint32_t context) {
  *job.mutable_mesh() = MakeMesh(job.mesh().pipeline(), job.mesh().data(), tensor, context);
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    v1::TensorCost& cost = *layer.add_tensor();
    cost.set_degree(2);
    cost.set_efficiency(0.93);
  }
  return job;
}

v1::JobSpec Tight(v1::JobSpec job) {
  job.mutable_planning()->set_memory_limit_bytes(700000);
  return job;
}

}  // namespace

std::vector<GoldenJob> GoldenJobs() {
  std::vector<GoldenJob> jobs;
  jobs.push_back(Large("gpt_dynamic", GptJob(4, 2, v1::POLICY_DYNAMIC), 120));
  jobs.push_back(Large("t5_dynamic", T5Job(4, 2, v1::POLICY_DYNAMIC), 120));
  jobs.push_back(Large("gpt_tight_memory", Tight(GptJob(4, 1, v1::POLICY_DYNAMIC)), 60));
  jobs.push_back(Large("t5_tight_memory", Tight(T5Job(4, 1, v1::POLICY_DYNAMIC)), 60));
  jobs.push_back(Large("gpt_two_stages_a_rank", TwoStagesARank(GptJob(2, 2, v1::POLICY_DYNAMIC)), 60));
  jobs.push_back(Large("t5_thorough", Thorough(T5Job(3, 2, v1::POLICY_DYNAMIC)), 50));
  jobs.push_back(Large("gpt_padding", GptJob(4, 2, v1::POLICY_PADDING), 80));
  jobs.push_back(Large("gpt_concatenated", GptJob(4, 2, v1::POLICY_CONCATENATED), 80));
  jobs.push_back(Large("gpt_packed", GptJob(4, 2, v1::POLICY_PACKED), 80));
  jobs.push_back(Large("t5_token_budget", T5Job(2, 3, v1::POLICY_TOKEN_BUDGET), 80));
  for (const v1::Schedule schedule :
       {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD, v1::SCHEDULE_READY_FIRST, v1::SCHEDULE_SPLIT_BACKWARD}) {
    jobs.push_back(Large(absl::StrCat("gpt_schedule_", static_cast<int>(schedule)),
                         Scheduled(GptJob(4, 1, v1::POLICY_DYNAMIC), schedule), 70));
  }
  jobs.push_back(Large("gpt_context", Grouped(GptJob(2, 1, v1::POLICY_DYNAMIC), 1, 8), 90));
  jobs.push_back(Large("gpt_context_packed", Grouped(GptJob(1, 2, v1::POLICY_PACKED), 1, 4), 90));
  jobs.push_back(Large("gpt_tensor_context", Grouped(GptJob(2, 2, v1::POLICY_DYNAMIC), 2, 2), 60));
  jobs.push_back(Large("t5_tensor", Grouped(T5Job(2, 2, v1::POLICY_DYNAMIC), 2, 1), 60));
  jobs.push_back(ManyShortSamples("gpt_many_samples", GptJob(4, 2, v1::POLICY_DYNAMIC)));
  // Seeds that can be planned.
  for (const uint64_t seed : {100, 104, 106, 108, 110, 112, 114, 118}) {
    jobs.push_back({absl::StrCat("random_", seed), MakeRandomCase(seed, RandomJobLimits())});
  }
  return jobs;
}

std::vector<GoldenJob> JobsToRepeat() {
  std::vector<GoldenJob> all = GoldenJobs();
  if (!kSanitized) return all;
  std::vector<GoldenJob> some;
  for (size_t i = 0; i < all.size(); i += 6) some.push_back(std::move(all[i]));
  return some;
}

}  // namespace penstock::core
