#include "planner/cli/plan_request.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/strategy_list.h"

namespace penstock::cli {
namespace {

// More would not change where the balance lies.
constexpr size_t kMostTypicalSamples = 4096;

bool ModelTakes(const v1::ModelSpec& model, const v1::Sample& sample) {
  const uint64_t input = sample.input_tokens(), target = sample.target_tokens();
  const uint64_t longest =
      model.architecture() == v1::ARCHITECTURE_T5 ? std::max(input, target) : input + target;
  return input + target > 0 && longest <= model.max_sequence_length();
}

}  // namespace

void SourceFlags::AddTo(CLI::App& command) {
  command.add_option("--profile", profile, "Cost profile (JSON)")->required();
  command.add_option("--lengths", lengths, "CSV with columns input_tokens,target_tokens or tokens")
      ->required();
  command.add_option("--max-length", limits.max_length,
                     "Cut samples to this many tokens (encoder-decoder: each side)");
  AddCutFlag(command, limits.cut);
  command.add_option("--max-input", limits.max_input, "Encoder-decoder: cut inputs to this many tokens");
  command.add_option("--max-target", limits.max_target, "Encoder-decoder: cut targets to this many tokens");
  adapters.AddTo(command);
  command.add_flag(
      "--beyond-profile", beyond_profile,
      "Plan samples longer than the profile was made for, up to --max-length, by its closed forms");
}

absl::StatusOr<v1::JobSpec> SourceFlags::ReadModel() const {
  PENSTOCK_ASSIGN_OR_RETURN(v1::ProfileFile file, ReadProfileFile("--profile", profile));
  PENSTOCK_RETURN_IF_ERROR(adapters.Give(&file));
  if (file.model().architecture() != v1::ARCHITECTURE_T5 && (limits.max_input > 0 || limits.max_target > 0))
    return absl::InvalidArgumentError(
        "--max-input and --max-target are for encoder-decoder models: use --max-length");
  v1::JobSpec job;
  job.set_job_id("plan");
  *job.mutable_model() = std::move(*file.mutable_model());
  if (beyond_profile) PENSTOCK_RETURN_IF_ERROR(GoBeyondProfile(file.profile(), *job.mutable_model()));
  *job.mutable_profile() = std::move(*file.mutable_profile());
  return job;
}

absl::Status SourceFlags::GoBeyondProfile(const v1::CostProfile& costs, v1::ModelSpec& model) const {
  const uint32_t longest = std::max({limits.max_length, limits.max_input, limits.max_target});
  if (longest == 0) return absl::InvalidArgumentError("--beyond-profile: say how far, by --max-length");
  for (const v1::LayerCost& layer : costs.layers()) {
    if (layer.has_forward()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--beyond-profile: '", layer.name(), "' of ", profile,
                                                   " has a table and no closed form (forward)"));
  }
  if (longest <= model.max_sequence_length()) return absl::OkStatus();
  std::cerr << "warning: samples of up to " << longest
            << " tokens are planned by the closed forms of a profile for " << model.max_sequence_length()
            << " at most; their times are less sure the longer they are\n";
  model.set_max_sequence_length(longest);
  return absl::OkStatus();
}

v1::Batch SourceFlags::MakeBatch(absl::Span<const SampleLength> rows, uint64_t first_row,
                                 v1::Architecture architecture) const {
  v1::Batch batch;
  for (const SampleLength& row : rows) {
    const uint64_t id = first_row++;
    const std::optional<SampleLength> left = CutToLimits(row, architecture, limits);
    if (!left.has_value()) continue;
    v1::Sample& sample = *batch.add_samples();
    sample.set_sample_id(id);
    sample.set_input_tokens(left->input);
    sample.set_target_tokens(left->target);
  }
  return batch;
}

void PlanRequestFlags::AddTo(CLI::App& command) {
  SourceFlags::AddTo(command);
  command.add_option("--rows", rows, "Data rows A:B, that is A to B-1, of the (first) global batch")
      ->required();
  command.add_option("--pp", pipeline, "Ranks of one pipeline (1)")->check(CLI::Range(1U, 1U << 20));
  command.add_option("--dp", data, "Replicas of the pipeline (1)")->check(CLI::Range(1U, 1U << 20));
  command.add_option("--tp", tensor, "Tensor ranks of a stage group, which divide its layers (1)")
      ->check(CLI::Range(1U, 1U << 20));
  command
      .add_option("--cp", context,
                  "Context ranks of a stage group, which divide the tokens; a power of two (1)")
      ->check(CLI::Range(1U, 1U << 20));
  command
      .add_option(
          "--ep", expert,
          "Ranks of a stage group that divide the experts; divides --cp x --tp, a multiple of --tp (1)")
      ->check(CLI::Range(1U, 1U << 20));
  AddStrategiesFlag(command, strategies);
  planning.AddTo(command);
  for (const char* flag : MeshFlags()) command.get_option("--strategies")->excludes(command.get_option(flag));
}

absl::StatusOr<v1::JobSpec> PlanRequestFlags::ReadJob() const {
  PENSTOCK_ASSIGN_OR_RETURN(v1::JobSpec job, ReadModel());
  *job.mutable_mesh() = MakeMesh(pipeline, data, tensor, context, expert);
  if (!strategies.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Strategy> read, ReadStrategies(strategies));
    SetStrategies(read, &job);
  }
  return job;
}

void PlanRequestFlags::SetPlanning(v1::Policy policy, v1::JobSpec* job) const {
  *job->mutable_planning() = planning.ToOptions(policy);
  // They cannot do without.
  if (!job->strategies().empty()) job->mutable_planning()->set_parameter_shares(true);
}

absl::StatusOr<std::vector<v1::Batch>> PlanRequestFlags::ReadBatches(uint64_t count,
                                                                     v1::Architecture architecture) const {
  PENSTOCK_ASSIGN_OR_RETURN(const RowRange first, ParseRows(rows));
  const uint64_t size = first.size();
  if (count > (UINT64_MAX - first.last) / size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rows ", rows, " of ", count, " batches: there are no files of so many rows"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<SampleLength> all,
                            ReadLengths(lengths, {first.first, first.first + count * size}));
  std::vector<v1::Batch> batches;
  for (uint64_t i = 0; i < count; ++i) {
    const auto rows_of_batch = absl::MakeConstSpan(all).subspan(i * size, size);
    batches.push_back(MakeBatch(rows_of_batch, first.first + i * size, architecture));
    batches.back().set_iteration(i);
  }
  return batches;
}

void SetTypicalSamples(const std::vector<v1::Batch>& batches, v1::JobSpec* job) {
  std::vector<const v1::Sample*> samples;
  for (const v1::Batch& batch : batches)
    for (const v1::Sample& sample : batch.samples())
      if (ModelTakes(job->model(), sample)) samples.push_back(&sample);
  const size_t count = std::min(samples.size(), kMostTypicalSamples);
  job->mutable_planning()->clear_typical_samples();
  if (!batches.empty()) {
    job->mutable_planning()->set_typical_batch_size(static_cast<uint32_t>(batches.front().samples_size()));
  }
  for (size_t i = 0; i < count; ++i) {
    const v1::Sample& sample = *samples[i * samples.size() / count];
    v1::SampleLengths& typical = *job->mutable_planning()->add_typical_samples();
    typical.set_input_tokens(sample.input_tokens());
    typical.set_target_tokens(sample.target_tokens());
  }
}

}  // namespace penstock::cli
