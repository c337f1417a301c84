#include "planner/cli/html_timeline.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/mesh/mesh_ranks.h"
#include "common/mesh/rank_places.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/timeline_page.h"
#include "planner/core/contract/whole_iteration.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

// Stands in the template where the data come.
constexpr absl::string_view kDataMark = "@PLAN_DATA@";

const char* LayoutName(v1::Layout layout) {
  switch (layout) {
    case v1::LAYOUT_PADDED:
      return "padded";
    case v1::LAYOUT_PACKED:
      return "packed";
    case v1::LAYOUT_CONCATENATED:
      return "concatenated";
    default:
      return "unknown";
  }
}

// "GPT, 32 layers, width 4096".
std::string ModelText(const v1::ModelSpec& model) {
  if (model.architecture() == v1::ARCHITECTURE_T5)
    return absl::StrCat("T5, ", model.encoder_layers(), " + ", model.decoder_layers(), " layers, width ",
                        model.hidden());
  return absl::StrCat("GPT, ", model.layers(), " layers, width ", model.hidden());
}

// JavaScript's numbers are exact to 2^53 - 1 only.
Json Exact(uint64_t id) {
  constexpr uint64_t kLargestExact = (uint64_t{1} << 53) - 1;
  return id <= kLargestExact ? Json(id) : Json(absl::StrCat(id));
}

Json Samples(const v1::Batch& batch) {
  Json samples = Json::array();
  for (const v1::Sample& sample : batch.samples())
    samples.push_back({Exact(sample.sample_id()), sample.input_tokens(), sample.target_tokens()});
  return samples;
}

// [first, ranks] of each row; empty with one context rank.
Json Spans(const v1::MicroBatch& micro_batch) {
  Json spans = Json::array();
  for (int row = 0; row < std::min(micro_batch.span_first_size(), micro_batch.span_ranks_size()); ++row)
    spans.push_back({micro_batch.span_first(row), micro_batch.span_ranks(row)});
  return spans;
}

Json MicroBatchData(const v1::MicroBatch& micro_batch) {
  Json recompute = Json::array();
  for (const v1::StageRecompute& stage : micro_batch.recompute())
    recompute.push_back({stage.selective_layers(), stage.full_layers()});
  return {{"samples", micro_batch.samples()},
          {"layout", LayoutName(micro_batch.layout())},
          {"rows", micro_batch.rows()},
          {"sourceLength", micro_batch.source_length()},
          {"targetLength", micro_batch.target_length()},
          {"realTokens", micro_batch.real_tokens()},
          {"computedTokens", micro_batch.computed_tokens()},
          {"recompute", std::move(recompute)},
          {"rowSamples", micro_batch.row_samples()},
          {"spans", Spans(micro_batch)},
          {"partRows", micro_batch.part_rows()},
          {"partChunks", micro_batch.part_chunks()},
          {"wholeBackward", micro_batch.whole_backward()}};
}

Json Replicas(const v1::Plan& plan) {
  Json replicas = Json::array();
  for (const v1::Replica& replica : plan.replicas()) {
    Json micro_batches = Json::array();
    for (const v1::MicroBatch& micro_batch : replica.micro_batches())
      micro_batches.push_back(MicroBatchData(micro_batch));
    replicas.push_back({{"microBatches", std::move(micro_batches)}});
  }
  return replicas;
}

Json JointPassData(const v1::Instruction& instruction) {
  const v1::PassExchange& exchange = instruction.exchange();
  return Json::array({instruction.own_duration_ns(), exchange.tensor_bytes(), exchange.tensor_ns(),
                      exchange.context_sent_bytes(), exchange.context_received_bytes(), exchange.context_ns(),
                      exchange.context_exposed_ns(), exchange.expert_bytes(), exchange.expert_ns(),
                      exchange.expert_exposed_ns()});
}

Json InstructionData(const v1::Instruction& instruction) {
  Json data = {static_cast<int>(instruction.op()),  static_cast<int>(instruction.stream()),
               instruction.micro_batch(),           instruction.stage(),
               instruction.expected_start_ns(),     instruction.expected_duration_ns(),
               instruction.memory_acquired_bytes(), instruction.memory_released_bytes()};
  if (instruction.has_transfer()) {
    data.push_back(instruction.transfer().bytes());
    data.push_back(instruction.transfer().peer());
    data.push_back(instruction.transfer().kind() == v1::TRANSFER_KIND_GRADIENT ? 1 : 0);
  } else if (instruction.has_collective()) {
    data.push_back(core::IsOfWholeIteration(instruction.op()) ? Json(instruction.collective().bytes())
                                                              : JointPassData(instruction));
  }
  return data;
}

Json RankData(const v1::Program& program, const v1::RankPrediction& predicted, const GroupPlace& place) {
  Json instructions = Json::array();
  for (const v1::Instruction& instruction : program.instructions())
    instructions.push_back(InstructionData(instruction));
  const v1::Bubble& bubble = predicted.bubble();
  return {{"rank", program.rank()},
          {"replica", program.replica()},
          {"stages", program.stages()},
          {"context", place.context},
          {"tensor", place.tensor},
          {"static", program.static_memory_bytes()},
          {"limit", program.memory_limit_bytes()},
          {"busy", predicted.busy_ns()},
          {"bubble",
           {bubble.fill_ns(), bubble.drain_ns(), bubble.dependency_ns(), bubble.transfer_ns(),
            bubble.imbalance_ns(), bubble.memory_ns(), bubble.group_ns()}},
          {"peak", predicted.peak_memory_bytes()},
          {"peakAt", predicted.peak_instruction()},
          {"instructions", std::move(instructions)}};
}

Json Ranks(const v1::Plan& plan) {
  const std::vector<GroupPlace> places = PlacesOf(plan);
  Json ranks = Json::array();
  for (int rank = 0; rank < plan.programs_size(); ++rank)
    ranks.push_back(RankData(plan.programs(rank),
                             rank < plan.predicted().ranks_size() ? plan.predicted().ranks(rank)
                                                                  : v1::RankPrediction::default_instance(),
                             places[rank]));
  return ranks;
}

// Names without "OP_".
Json OpNames() {
  Json names = Json::object();
  for (int op = v1::Op_MIN; op <= v1::Op_MAX; ++op)
    if (v1::Op_IsValid(op)) names[absl::StrCat(op)] = v1::Op_Name(static_cast<v1::Op>(op)).substr(3);
  return names;
}

}  // namespace

nlohmann::ordered_json TimelineData(const v1::PlannedBatch& planned) {
  const v1::Plan& plan = planned.plan();
  return {{"job", plan.job_id()},
          {"iteration", Exact(plan.iteration())},
          {"schedule", ScheduleName(plan.schedule())},
          {"model", ModelText(plan.model())},
          {"mesh",
           {plan.mesh().pipeline(), plan.mesh().data(), ContextRanks(plan.mesh()), TensorRanks(plan.mesh())}},
          {"layersPerStage", plan.layers_per_stage()},
          {"makespan", plan.predicted().makespan_ns()},
          {"lastBackward", plan.predicted().last_backward_ns()},
          {"lowerBound", plan.lower_bound_ns()},
          {"realTokens", plan.real_tokens()},
          {"computedTokens", plan.computed_tokens()},
          {"ops", OpNames()},
          {"samples", Samples(planned.batch())},
          {"replicas", Replicas(plan)},
          {"ranks", Ranks(plan)}};
}

std::string HtmlTimeline(const v1::PlannedBatch& planned, nlohmann::ordered_json explanation) {
  Json page = TimelineData(planned);
  page["explanation"] = std::move(explanation);
  const std::string json = page.dump(-1, ' ', false, Json::error_handler_t::replace);
  // In JSON a '<' stands in texts only. Without it no text can end the data's element ("</script>") or change
  // how it is read ("<!--").
  const std::string data = absl::StrReplaceAll(json, {{"<", "\\u003c"}});
  return absl::StrReplaceAll(kTimelinePage, {{kDataMark, data}});
}

std::string HtmlTimeline(const v1::PlannedBatch& planned) { return HtmlTimeline(planned, nullptr); }

}  // namespace penstock::cli
