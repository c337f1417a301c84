#include "tests/unit/core/random_job.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "planner/core/contract/total_layers.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

void RandomModel(const RandomJobLimits& limits, uint32_t stages, Random* random, v1::JobSpec* job) {
  v1::ModelSpec* model = job->mutable_model();
  const uint32_t layers = random->Range(stages, std::max(stages, limits.layers));
  if (model->architecture() == v1::ARCHITECTURE_GPT) {
    model->set_layers(layers);
    return;
  }
  const uint32_t encoders = random->Range(1, std::max(layers, 2u) - 1);
  model->set_encoder_layers(encoders);
  model->set_decoder_layers(std::max(layers, 2u) - encoders);
}

// Cuts the layers into stages of at least one layer.
void RandomStages(uint32_t stages, Random* random, v1::JobSpec* job) {
  const v1::ModelSpec& model = job->model();
  const uint32_t layers = TotalLayers(model);
  std::vector<uint32_t> sizes(stages, 1);
  for (uint32_t left = layers - stages; left > 0; --left) ++sizes[random->Range(0, stages - 1)];
  for (const uint32_t size : sizes) job->mutable_planning()->add_layers_per_stage(size);
}

// Every rank has a stage; a V, turns, or anything.
void RandomPlacement(uint32_t stages, Random* random, v1::JobSpec* job) {
  const uint32_t ranks = job->mesh().pipeline();
  const uint32_t kind = random->Range(0, 2);
  for (uint32_t stage = 0; stage < stages; ++stage) {
    uint32_t rank = stage % ranks;
    if (stage >= ranks && kind == 0) rank = ranks - 1 - rank;
    if (stage >= ranks && kind == 1) rank = random->Range(0, ranks - 1);
    job->mutable_planning()->add_rank_of_stage(rank);
  }
}

void RandomProfile(bool needs_selective, Random* random, v1::CostProfile* profile) {
  const bool selective = random->Chance(needs_selective ? 90 : 50);
  const double share = 0.1 * random->Range(3, 7);
  const double half_efficiency = random->Chance(50) ? random->Range(1, 200) : 0;
  const bool loss_tokens_only = random->Chance(20);
  for (v1::LayerCost& layer : *profile->mutable_layers()) {
    layer.set_backward_input_share(share);
    layer.mutable_forward()->set_half_efficiency_tokens(half_efficiency);
    layer.mutable_forward()->set_fixed_ns(random->Range(0, 3000));
    if (layer.name() == "head") {
      layer.set_loss_tokens_only(loss_tokens_only);
    } else if (selective) {
      layer.set_backward_ratio_selective(2.3);
      v1::LayerBytes* bytes = layer.mutable_stored_selective();
      *bytes = layer.stored_none();
      bytes->set_source_token_bytes(bytes->source_token_bytes() * 0.7);
      bytes->set_target_token_bytes(bytes->target_token_bytes() * 0.7);
    }
  }
  if (random->Chance(50)) {
    const uint32_t token = random->Range(1, 4);
    v1::LayerTime* embedding = profile->mutable_embedding_forward();
    embedding->set_target_token_ns(token);
    embedding->set_source_token_ns(1.5 * token);
    embedding->set_fixed_ns(50 * token);
    embedding->set_half_efficiency_tokens(10 * token);
  }
  profile->set_optimizer_ns_per_parameter_byte(0.1 * random->Range(0, 10));
}

// Tensor ranks compute their parts as fast as they should, or more slowly; measured, or not.
void RandomTensorCosts(uint32_t tensor, Random* random, v1::CostProfile* profile) {
  const double efficiency = 0.01 * random->Range(40, 100);
  const bool measured = random->Chance(30);
  for (v1::LayerCost& layer : *profile->mutable_layers()) {
    v1::TensorCost* cost = layer.add_tensor();
    cost->set_degree(tensor);
    cost->set_efficiency(efficiency);
    if (!measured) continue;
    const double factor = 1 / (efficiency * tensor);
    v1::LayerTime* form = cost->mutable_forward();
    *form = layer.forward();
    form->set_fixed_ns(form->fixed_ns() * 0.01 * random->Range(20, 100));
    form->set_target_token_ns(form->target_token_ns() * factor);
    form->set_source_token_ns(form->source_token_ns() * factor);
    form->set_target_square_ns(form->target_square_ns() * factor);
    form->set_source_square_ns(form->source_square_ns() * factor);
    form->set_cross_ns(form->cross_ns() * factor);
  }
}

// Context ranks for a GPT with closed forms alone.
void RandomGroups(const RandomJobLimits& limits, Random* random, v1::JobSpec* job) {
  job->mutable_model()->set_heads(4);
  const bool divisible = job->model().architecture() == v1::ARCHITECTURE_GPT;
  const uint32_t key_value_heads = 1u << random->Range(0, 2);
  if (divisible) job->mutable_model()->set_key_value_heads(key_value_heads);
  uint32_t tensor = 1;
  while (2 * tensor <= limits.tensor && random->Chance(50)) tensor *= 2;
  job->mutable_mesh()->set_tensor(tensor);
  if (tensor > 1) RandomTensorCosts(tensor, random, job->mutable_profile());
  uint32_t context = 1;
  while (divisible && 2 * context <= limits.context && random->Chance(tensor > 1 ? 50 : 75)) context *= 2;
  job->mutable_mesh()->set_context(context);
  v1::Cluster* cluster = job->mutable_profile()->mutable_cluster();
  cluster->set_attention_hides_exchange(random->Chance(50));
  if (random->Chance(50)) return;
  const double bandwidth = 1e6 * static_cast<double>(1 << random->Range(7, 16));
  cluster->set_intra_node_collective_bytes_per_second(bandwidth);
  cluster->set_inter_node_collective_bytes_per_second(bandwidth / random->Range(1, 5));
  cluster->set_intra_node_collective_latency_ns(random->Range(1, 100));
  cluster->set_inter_node_collective_latency_ns(random->Range(1, 400));
}

// Of collectives over some numbers of ranks.
void RandomSpeeds(Random* random, v1::Cluster* cluster) {
  for (uint32_t ranks = 2; ranks <= 32; ranks *= 2) {
    if (random->Chance(50)) continue;
    v1::CollectiveSpeed* speed = cluster->add_collective_speeds();
    speed->set_ranks(ranks);
    speed->set_bytes_per_second(1e6 * static_cast<double>(1 << random->Range(7, 16)));
    speed->set_latency_ns(random->Range(0, 300));
  }
}

// Eight experts over some of the ranks of a stage group, with figures of their own or without.
void RandomExperts(Random* random, v1::JobSpec* job) {
  const uint32_t tensor = std::max(1u, job->mesh().tensor());
  const uint32_t group = tensor * std::max(1u, job->mesh().context());
  if (job->model().architecture() != v1::ARCHITECTURE_GPT || group == 1) return;
  uint32_t expert = std::max(2u, tensor);
  while (2 * expert <= std::min(group, 8u) && random->Chance(50)) expert *= 2;
  job->mutable_mesh()->set_expert(expert);
  job->mutable_profile()->mutable_cluster()->set_exchange_overlap(random->Range(0, 2) / 2.0);
  v1::ModelSpec* model = job->mutable_model();
  model->set_experts(8);
  model->set_experts_per_token(random->Range(1, 3));
  model->set_feed_forward_biases(v1::BIASES_NONE);
  // Of the parameters that the profile says a layer has.
  model->set_hidden(4);
  model->set_ffn(4);
  const bool measured = !random->Chance(50);
  if (random->Chance(30)) {
    model->set_shared_expert_ffn(4);
    model->set_gated_shared_expert(random->Chance(50));
  }
  if (!measured) return;
  for (v1::LayerCost& layer : *job->mutable_profile()->mutable_layers()) {
    v1::TensorCost cost;
    cost.set_degree(tensor);
    cost.set_expert(expert);
    cost.set_efficiency(0.01 * random->Range(40, 100));
    *layer.add_tensor() = cost;
  }
}

// Layers without experts in a model with some, which cost more or less than the others.
void RandomDenseLayers(Random* random, v1::JobSpec* job) {
  v1::ModelSpec* model = job->mutable_model();
  if (model->experts() == 0 || model->layers() < 2) return;
  const uint32_t with_experts = random->Range(1, model->layers());
  for (uint32_t layer = 1; layer <= model->layers(); ++layer)
    if (layer != with_experts && random->Chance(50)) model->add_dense_layers(layer);
  if (model->dense_layers().empty()) return;
  v1::LayerCost dense = job->profile().layers(0);
  dense.set_name("dense");
  const double size = 0.1 * random->Range(2, 20);
  v1::LayerTime& forward = *dense.mutable_forward();
  forward.set_target_token_ns(size * forward.target_token_ns());
  dense.set_parameter_bytes(size * dense.parameter_bytes());
  for (v1::LayerBytes* bytes :
       {dense.mutable_stored_none(), dense.mutable_stored_full(), dense.mutable_peak()})
    bytes->set_target_token_bytes(size * bytes->target_token_bytes());
  if (dense.has_stored_selective())
    dense.mutable_stored_selective()->set_target_token_bytes(size *
                                                             dense.stored_selective().target_token_bytes());
  *job->mutable_profile()->add_layers() = dense;
}

// The rank with most rows has up to all of them.
void RandomExpertLoad(Random* random, v1::JobSpec* job) {
  if (job->mesh().expert() < 2) return;
  v1::ExpertLoad* const load = job->mutable_profile()->add_expert_loads();
  load->set_ranks(job->mesh().expert());
  load->set_fullest(1 + 0.01 * random->Range(0, 100) * (job->mesh().expert() - 1));
}

void RandomSlowRanks(Random* random, v1::JobSpec* job) {
  const uint32_t ranks = job->mesh().pipeline() * job->mesh().data() * std::max(1u, job->mesh().context()) *
                         std::max(1u, job->mesh().tensor());
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (!random->Chance(25)) continue;
    v1::SlowRank* slow = job->mutable_profile()->add_slow_ranks();
    slow->set_rank(rank);
    slow->set_factor(1 + 0.01 * random->Range(1, 250));
  }
}

// Those of pipelines and of rings among them; in half of the jobs as slow in both directions.
void RandomSlowLinks(Random* random, v1::JobSpec* job) {
  const auto ranks = static_cast<uint32_t>(RanksOf(*job));
  const bool both_ways = random->Chance(50);
  std::map<std::pair<uint32_t, uint32_t>, double> factors;
  for (uint32_t from = 0; from < ranks; ++from) {
    for (uint32_t to = 0; to < ranks; ++to) {
      if (from == to || !random->Chance(25)) continue;
      factors[{from, to}] = 1 + 0.01 * random->Range(1, random->Chance(50) ? 100 : 5000);
      if (both_ways) factors[{to, from}] = factors[{from, to}];
    }
  }
  for (const auto& [ends, factor] : factors) {
    v1::SlowLink* slow = job->mutable_profile()->add_slow_links();
    slow->set_from(ends.first);
    slow->set_to(ends.second);
    slow->set_factor(factor);
  }
}

// Measured points near the closed form, for the padded layout of a GPT.
void RandomTables(Random* random, v1::CostProfile* profile) {
  for (const uint32_t rows : {1, 2, 4}) profile->mutable_grid()->add_micro_batch_size(rows);
  for (const uint32_t length : {16, 64, 256, 1024}) profile->mutable_grid()->add_target_length(length);
  v1::LayerCost& layer = *profile->mutable_layers(0);
  const v1::LayerTime& form = layer.forward();
  for (const double rows : {1.0, 2.0, 4.0}) {
    for (const double length : {16.0, 64.0, 256.0, 1024.0}) {
      const double tokens = rows * length;
      const double square = form.target_square_ns() * tokens * length;
      const double time = form.fixed_ns() + (form.target_token_ns() * tokens + square) *
                                                (1 + form.half_efficiency_tokens() / tokens);
      const double measured = 1e-8 * random->Range(90, 120) * time;
      layer.mutable_forward_ms()->add_values(measured);
      layer.mutable_backward_none_ms()->add_values(0.01 * random->Range(190, 210) * measured);
    }
  }
}

// Backward passes whose parts depend on lengths in other ways than forward passes do.
void RandomBackwardForms(Random* random, v1::CostProfile* profile) {
  for (v1::LayerCost& layer : *profile->mutable_layers()) {
    if (layer.name() == "head" || layer.has_forward_ms()) continue;
    for (v1::LayerTime* form : {layer.mutable_backward_input(), layer.mutable_backward_weight()}) {
      const auto some = [&](double of) { return of * 0.1 * random->Range(0, 20); };
      form->set_fixed_ns(some(layer.forward().fixed_ns()));
      form->set_target_token_ns(some(layer.forward().target_token_ns()));
      form->set_target_square_ns(some(layer.forward().target_square_ns()));
      form->set_cross_ns(some(layer.forward().cross_ns()));
      form->set_source_token_ns(some(layer.forward().source_token_ns()));
      form->set_source_square_ns(some(layer.forward().source_square_ns()));
      form->set_half_efficiency_tokens(random->Range(0, 200));
    }
  }
}

// From a layer that takes twice as long for a token among few to one that takes as long among many.
void RandomEfficiencyOf(Random* random, v1::LayerTime* form) {
  form->clear_half_efficiency_tokens();
  double tokens = random->Range(1, 100);
  double least = 0;
  for (uint32_t left = random->Range(1, 4); left > 0; --left) {
    v1::EfficiencyPoint* const point = form->add_efficiency();
    point->set_tokens(tokens);
    point->set_factor(std::max(0.01 * random->Range(50, 200), least));
    const double next = tokens * (1 + 0.1 * random->Range(1, 50));
    least = point->factor() * next / (2 * next - tokens);
    tokens = next;
  }
}

void RandomEfficiency(Random* random, v1::CostProfile* profile) {
  const auto some = [&](v1::LayerTime* form) {
    if (random->Chance(75)) RandomEfficiencyOf(random, form);
  };
  for (v1::LayerCost& layer : *profile->mutable_layers()) {
    some(layer.mutable_forward());
    if (!layer.has_backward_input()) continue;
    some(layer.mutable_backward_input());
    some(layer.mutable_backward_weight());
  }
  if (profile->has_embedding_forward()) some(profile->mutable_embedding_forward());
}

void RandomCluster(Random* random, v1::Cluster* cluster) {
  cluster->set_gpus_per_node(random->Range(1, 8));
  // From links that hide to ones that take as long as the passes.
  const double bandwidth = 1e6 * static_cast<double>(1 << random->Range(7, 14));
  cluster->set_intra_node_bytes_per_second(bandwidth);
  cluster->set_inter_node_bytes_per_second(bandwidth / random->Range(1, 5));
  const uint32_t latency = random->Chance(30) ? 0 : random->Range(1, 300);
  cluster->set_intra_node_latency_ns(latency);
  cluster->set_inter_node_latency_ns(latency * random->Range(1, 4));
}

v1::Schedule RandomSchedule(bool several_stages, Random* random) {
  if (random->Chance(50)) return v1::SCHEDULE_AUTO;
  if (several_stages) {
    return random->Chance(50) ? v1::SCHEDULE_INTERLEAVED : v1::SCHEDULE_SPLIT_BACKWARD;
  }
  static constexpr v1::Schedule kOneStage[] = {v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD,
                                               v1::SCHEDULE_READY_FIRST, v1::SCHEDULE_SPLIT_BACKWARD};
  return kOneStage[random->Range(0, 2)];
}

// Without a draw that others would have had, so that jobs with and without shares are alike.
void RandomShares(uint32_t percent, Random random, v1::PlanningOptions* planning) {
  if (!random.Chance(percent)) return;
  planning->set_shard_optimizer_state(false);
  planning->set_parameter_shares(true);
}

// Likewise.
void RandomWindows(uint32_t percent, Random random, v1::ModelSpec* model) {
  if (model->architecture() != v1::ARCHITECTURE_GPT || !random.Chance(percent)) return;
  model->set_attention_window(random.Range(1, 400));
  if (random.Chance(50)) model->set_windowless_interval(random.Range(2, 4));
}

// Kernels that are called for each packed row.
void RandomRows(Random* random, v1::CostProfile* profile) {
  for (v1::LayerCost& layer : *profile->mutable_layers()) {
    if (layer.name() == "head") continue;
    layer.mutable_forward()->set_packed_row_ns(random->Range(1, 200));
    if (!layer.has_backward_input()) continue;
    layer.mutable_backward_input()->set_packed_row_ns(random->Range(0, 200));
    layer.mutable_backward_weight()->set_packed_row_ns(random->Range(0, 20));
  }
}

// More calls of attention's kernels, and what is merged of them.
void RandomDividedRows(Random* random, v1::CostProfile* profile) {
  for (v1::LayerCost& layer : *profile->mutable_layers()) {
    if (layer.name() == "head") continue;
    layer.mutable_forward()->set_divided_row_ns(random->Range(1, 3000));
    if (!layer.has_backward_input()) continue;
    layer.mutable_backward_input()->set_divided_row_ns(random->Range(0, 6000));
  }
}

// Kernels that make something for all rows of a call.
void RandomCalls(Random* random, v1::CostProfile* profile) {
  for (v1::LayerCost& layer : *profile->mutable_layers()) {
    if (layer.name() == "head") continue;
    const double share = 0.1 * random->Range(1, 10);
    std::vector<v1::LayerTime*> forms = {layer.mutable_forward()};
    if (layer.has_backward_input()) forms.push_back(layer.mutable_backward_input());
    for (v1::LayerTime* form : forms) {
      form->set_target_call_square_ns(share * form->target_square_ns());
      form->set_source_call_square_ns(share * form->source_square_ns());
    }
  }
}

void RandomPlanning(bool several_stages, Random* random, v1::PlanningOptions* planning) {
  static constexpr v1::Policy kBaselines[] = {v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED,
                                              v1::POLICY_TOKEN_BUDGET};
  planning->set_policy(random->Chance(60) ? v1::POLICY_DYNAMIC : kBaselines[random->Range(0, 3)]);
  planning->set_layout(static_cast<v1::LayoutChoice>(random->Range(0, 3)));
  planning->set_schedule(RandomSchedule(several_stages, random));
  planning->set_recompute(v1::RECOMPUTE_AUTO);
  if (random->Chance(15)) planning->set_recompute(v1::RECOMPUTE_NONE);
  if (random->Chance(15)) planning->set_recompute(v1::RECOMPUTE_FULL);
  if (random->Chance(15)) planning->set_recompute(v1::RECOMPUTE_SELECTIVE);
  if (random->Chance(15)) planning->set_micro_batch_size(random->Range(1, 4));
  if (random->Chance(15)) planning->set_token_cap(random->Range(1, 3000));
  static constexpr v1::Effort kEfforts[] = {v1::EFFORT_FAST, v1::EFFORT_NORMAL, v1::EFFORT_NORMAL};
  planning->set_effort(kEfforts[random->Range(0, 2)]);
  planning->set_shard_optimizer_state(random->Chance(30));
}

v1::Batch RandomLengths(uint32_t samples, Random* random) {
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  const uint32_t longest = 1u << random->Range(4, 11);
  for (uint32_t i = 0; i < samples; ++i) {
    const auto length = [&] {
      return random->Chance(10) ? 0 : random->Range(0, random->Chance(75) ? longest / 8 : longest);
    };
    const uint32_t input = length();
    uint32_t target = length();
    if (input + target == 0) target = 1;
    lengths.emplace_back(input, target);
  }
  return MakeBatch(lengths);
}

uint32_t RanksOfGroup(const v1::Mesh& mesh) {
  return std::max(1u, mesh.context()) * std::max(1u, mesh.tensor());
}

// So that the batch's activations, spread over the ranks, are from a fraction of the limit to a multiple of
// it.
void RandomMemory(const v1::Batch& batch, Random* random, v1::JobSpec* job) {
  if (random->Chance(55)) return;
  double tokens = 0;
  double longest = 0;
  for (const v1::Sample& sample : batch.samples()) {
    const double length = sample.input_tokens() + sample.target_tokens();
    tokens += length;
    longest = std::max(longest, length);
  }
  const uint32_t group = RanksOfGroup(job->mesh());
  const double layers = static_cast<double>(TotalLayers(job->model())) / job->mesh().pipeline();
  // The head and the embeddings: T5 has two.
  const double besides = job->model().architecture() == v1::ARCHITECTURE_T5 ? 6000 : 4000;
  const double parameters = 4 * (1000.0 * layers + besides) / std::max(1u, job->mesh().tensor());
  const double activations = 100 * layers * (longest + tokens / job->mesh().data()) / group;
  const double share = 0.01 * random->Range(15, 110);
  job->mutable_planning()->set_memory_limit_bytes(static_cast<int64_t>(parameters + share * activations));
}

// Some ranks have more or less than the others, or as good as nothing; some replicas as a whole.
void RandomRankMemory(Random* random, v1::JobSpec* job) {
  const auto ranks = static_cast<uint32_t>(RanksOf(*job));
  const auto of_replica = static_cast<uint32_t>(PipelineRanks(job->mesh()));
  int64_t limit = job->planning().memory_limit_bytes();
  if (limit == 0) limit = job->profile().cluster().memory_bytes();
  const bool whole_replicas = random->Chance(50);
  uint32_t percent = 100;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (!whole_replicas || rank % of_replica == 0)
      percent = random->Chance(50) ? 100 : random->Range(50, 150);
    if (percent == 100) continue;
    v1::RankMemoryLimit* own = job->mutable_planning()->add_rank_memory_limits();
    own->set_rank(rank);
    own->set_bytes(std::max<int64_t>(1, limit / 100 * percent));
  }
}

}  // namespace

void RandomShareWeights(uint64_t ranks, Random* random, v1::PlanningOptions* planning) {
  planning->clear_share_weights();
  for (uint64_t rank = 0; rank < ranks; ++rank)
    planning->add_share_weights(random->Chance(20) ? 0 : random->Range(1, random->Chance(20) ? 1 << 20 : 4));
  planning->set_share_weights(static_cast<int>(random->Range(0, static_cast<uint32_t>(ranks) - 1)), 2);
}

std::string RandomPlanningCase::Describe() const {
  std::string lengths;
  for (const v1::Sample& sample : batch.samples()) {
    absl::StrAppend(&lengths, " ", sample.input_tokens(), "+", sample.target_tokens());
  }
  std::string slow;
  for (const v1::SlowRank& rank : job.profile().slow_ranks())
    absl::StrAppend(&slow, "rank ", rank.rank(), " slow by ", rank.factor(), "\n");
  for (const v1::SlowLink& link : job.profile().slow_links())
    absl::StrAppend(&slow, "link ", link.from(), " to ", link.to(), " slow by ", link.factor(), "\n");
  return absl::StrCat(slow, job.mesh().ShortDebugString(), "\n", job.model().ShortDebugString(), "\n",
                      job.planning().ShortDebugString(), "\nsamples", lengths, "\n");
}

bool HasOneWayLinks(const v1::CostProfile& profile) {
  std::map<std::pair<uint32_t, uint32_t>, double> factors;
  for (const v1::SlowLink& slow : profile.slow_links()) factors[{slow.from(), slow.to()}] = slow.factor();
  return std::ranges::any_of(factors, [&](const auto& slow) {
    const auto back = factors.find({slow.first.second, slow.first.first});
    return back == factors.end() || back->second != slow.second;
  });
}

RandomPlanningCase MakeRandomCase(uint64_t seed, const RandomJobLimits& limits) {
  Random random(seed);
  RandomPlanningCase result;
  const uint32_t pipeline = random.Range(1, limits.pipeline);
  const uint32_t replicas = random.Chance(50) ? 1 : random.Range(1, limits.replicas);
  v1::JobSpec& job = result.job;
  job = random.Chance(50) ? GptJob(pipeline, replicas, v1::POLICY_DYNAMIC)
                          : T5Job(pipeline, replicas, v1::POLICY_DYNAMIC);
  const bool several = random.Chance(25);
  const uint32_t stages = several ? random.Range(pipeline, 2 * pipeline) : pipeline;
  RandomModel(limits, stages, &random, &job);
  RandomPlanning(stages > pipeline, &random, job.mutable_planning());
  RandomShares(limits.shares_percent, random, job.mutable_planning());
  RandomWindows(limits.windows_percent, random, job.mutable_model());
  if (several || random.Chance(50)) RandomStages(stages, &random, &job);
  if (several) RandomPlacement(stages, &random, &job);
  if (!several && job.planning().layers_per_stage().empty()) {
    job.mutable_planning()->set_stage_split(random.Chance(50) ? v1::STAGE_SPLIT_EVEN : v1::STAGE_SPLIT_AUTO);
  }
  RandomProfile(job.planning().recompute() == v1::RECOMPUTE_SELECTIVE, &random, job.mutable_profile());
  // Drawn apart, so that the rest of a job does not depend on it.
  Random tables(seed + (uint64_t{1} << 40));
  if (job.model().architecture() == v1::ARCHITECTURE_GPT && tables.Chance(25)) {
    RandomTables(&tables, job.mutable_profile());
  }
  Random backward(seed + (uint64_t{5} << 40));
  if (backward.Chance(limits.backward_forms_percent)) RandomBackwardForms(&backward, job.mutable_profile());
  Random rows(seed + (uint64_t{9} << 40));
  if (rows.Chance(25)) RandomRows(&rows, job.mutable_profile());
  Random calls(seed + (uint64_t{12} << 40));
  if (calls.Chance(limits.calls_percent)) RandomCalls(&calls, job.mutable_profile());
  Random step(seed + (uint64_t{15} << 40));
  if (step.Chance(limits.fixed_step_percent))
    job.mutable_profile()->set_optimizer_fixed_ns(0.3 * step.Range(1, 20000));
  Random efficiency(seed + (uint64_t{13} << 40));
  if (efficiency.Chance(limits.efficiency_percent)) RandomEfficiency(&efficiency, job.mutable_profile());
  RandomCluster(&random, job.mutable_profile()->mutable_cluster());
  // Drawn apart, too.
  Random groups(seed + (uint64_t{2} << 40));
  if (limits.context > 1 || limits.tensor > 1) RandomGroups(limits, &groups, &job);
  Random divided(seed + (uint64_t{17} << 40));
  if (job.mesh().context() > 1 && divided.Chance(40)) RandomDividedRows(&divided, job.mutable_profile());
  Random speeds(seed + (uint64_t{16} << 40));
  if (speeds.Chance(limits.speeds_percent)) RandomSpeeds(&speeds, job.mutable_profile()->mutable_cluster());
  Random weights(seed + (uint64_t{7} << 40));
  if (job.planning().parameter_shares() && weights.Chance(limits.weights_percent))
    RandomShareWeights(RanksOf(job), &weights, job.mutable_planning());
  Random experts(seed + (uint64_t{4} << 40));
  if (experts.Chance(limits.expert_percent)) RandomExperts(&experts, &job);
  Random dense(seed + (uint64_t{10} << 40));
  if (dense.Chance(limits.dense_percent)) RandomDenseLayers(&dense, &job);
  Random loads(seed + (uint64_t{6} << 40));
  if (loads.Chance(limits.uneven_percent)) RandomExpertLoad(&loads, &job);
  Random slow(seed + (uint64_t{3} << 40));
  if (slow.Chance(limits.slow_percent)) RandomSlowRanks(&slow, &job);
  Random links(seed + (uint64_t{8} << 40));
  if (links.Chance(limits.slow_link_percent)) RandomSlowLinks(&links, &job);
  result.batch = RandomLengths(random.Range(1, limits.samples), &random);
  RandomMemory(result.batch, &random, &job);
  Random rank_memory(seed + (uint64_t{11} << 40));
  if (rank_memory.Chance(limits.rank_memory_percent)) RandomRankMemory(&rank_memory, &job);
  return result;
}

}  // namespace penstock::core
