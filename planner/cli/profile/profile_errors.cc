#include "planner/cli/profile/profile_errors.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "planner/cli/text_table.h"
#include "planner/cli/thousands.h"
#include "planner/cli/units.h"
#include "planner/core/contract/model_architecture.h"
#include "planner/core/contract/model_windows.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/layer_model.h"
#include "planner/core/model/micro_batch.h"
#include "planner/core/model/share.h"
#include "planner/core/topology/nodes.h"
#include "planner/core/topology/topology.h"

namespace penstock::cli {
namespace {

bool IsShare(const HeldOutPass& pass) { return pass.contexts > 1; }

// What the context rank has of rows that are one sample each, of which it has all or a part.
core::TokenSums ShareSums(const HeldOutPass& pass, const core::AttentionWindows& windows) {
  const core::Topology group({.stages = {core::Stage()},
                              .positions = 1,
                              .position_of_stage = {0},
                              .group = {.context = static_cast<int32_t>(pass.contexts)}},
                             /*replicas=*/1);
  std::vector<core::SampleTokens> tokens;
  std::vector<core::Row> rows;
  std::vector<core::Span> spans;
  for (const HeldOutSample& sample : pass.samples) {
    const double less = windows.LessSquare(sample.target);
    tokens.push_back({.target = sample.target, .less_square = less});
    rows.push_back({.length = sample.target, .less_square = less, .samples = {}});
    const uint32_t first = pass.context - pass.context % sample.span;
    spans.push_back({static_cast<int32_t>(first), static_cast<int32_t>(sample.span)});
  }
  std::vector<core::Share> shares;
  core::SharesOf(rows, tokens, spans, core::Nodes(group, group.ranks()), static_cast<int>(pass.contexts),
                 &shares);
  return shares[pass.context].sums;
}

core::TokenSums SumsOf(const HeldOutPass& pass, const core::AttentionWindows& windows) {
  if (IsShare(pass)) return ShareSums(pass, windows);
  const HeldOutSample& first = pass.samples.front();
  if (!pass.packed) {
    return core::PaddedSums(static_cast<int32_t>(pass.samples.size()), static_cast<int32_t>(first.source),
                            static_cast<int32_t>(first.target), pass.loss_tokens,
                            windows.LessSquare(first.target));
  }
  core::TokenSums sums;
  for (const HeldOutSample& sample : pass.samples)
    core::AddPacked({.source = sample.source,
                     .target = sample.target,
                     .loss = 0,
                     .less_square = windows.LessSquare(sample.target)},
                    &sums);
  sums.loss = pass.loss_tokens;
  return sums;
}

core::LayerKind KindOf(HeldOutPart part) {
  if (part == HeldOutPart::kHead) return core::kHead;
  if (part == HeldOutPart::kDenseLayer) return core::kDense;
  return part == HeldOutPart::kEncoderLayer ? core::kEncoder : core::kDecoder;
}

core::RecomputeLevel LevelOf(HeldOutRecompute recompute) {
  if (recompute == HeldOutRecompute::kFull) return core::kKeepInput;
  return recompute == HeldOutRecompute::kSelective ? core::kKeepSelective : core::kKeepAll;
}

// As plans take it; nothing where the shape is outside of the profile.
std::optional<double> ForetoldNs(const core::Profile& profile, const core::LayerModel& model,
                                 const HeldOutPass& pass) {
  core::LayerCosts costs;
  const core::LayerKind kind = KindOf(pass.part);
  if (!profile.layers[kind].present || !model.Layers(SumsOf(pass, profile.windows), &costs))
    return std::nullopt;
  const double backward = costs.backward[kind][LevelOf(pass.recompute)];
  switch (pass.kind) {
    case HeldOutKind::kForward:
      return costs.forward[kind];
    case HeldOutKind::kBackward:
      return backward;
    case HeldOutKind::kBackwardInput:
      return backward - costs.weight[kind];
    case HeldOutKind::kBackwardWeight:
      return costs.weight[kind];
    case HeldOutKind::kBoth:
      return costs.forward[kind] + backward;
  }
  return std::nullopt;
}

// Of a share about those that the rank has.
int64_t TokensOf(const HeldOutPass& pass) {
  return std::accumulate(
      pass.samples.begin(), pass.samples.end(), int64_t{0},
      [](int64_t sum, const HeldOutSample& s) { return sum + (s.source + s.target) / s.span; });
}

// The value below which `share` of the sorted values are.
double Quantile(const std::vector<double>& sorted, double share) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(std::lround(share * last))];
}

ErrorDistribution DistributionOf(const std::string& of, const std::vector<ForetoldPass>& passes) {
  std::vector<double> errors, biases;
  double distance_ns = 0, measured_ns = 0;
  for (const ForetoldPass& pass : passes) {
    distance_ns += std::abs(pass.foretold_ns - pass.pass.duration_ns);
    measured_ns += pass.pass.duration_ns;
    biases.push_back(pass.error());
    errors.push_back(std::abs(pass.error()));
  }
  std::ranges::sort(errors);
  std::ranges::sort(biases);
  return {.of = of,
          .passes = passes.size(),
          .median = Quantile(errors, 0.5),
          .percentile_95 = Quantile(errors, 0.95),
          .worst = errors.back(),
          .of_time = distance_ns / measured_ns,
          .median_bias = Quantile(biases, 0.5)};
}

// A class of passes that people ask about.
struct Class {
  const char* name;
  std::function<bool(const HeldOutPass&)> has;
};

// Of shares of context ranks, and of all else where there are some.
std::vector<Class> SharesOfContextRanks() {
  const auto kind = [](HeldOutKind k) {
    return [k](const HeldOutPass& pass) { return IsShare(pass) && pass.kind == k; };
  };
  return {{"whole rows", [](const HeldOutPass& pass) { return !IsShare(pass); }},
          {"shares of context ranks", IsShare},
          {"shares, forward", kind(HeldOutKind::kForward)},
          {"shares, backward", kind(HeldOutKind::kBackward)},
          {"shares, dX", kind(HeldOutKind::kBackwardInput)},
          {"shares, dW", kind(HeldOutKind::kBackwardWeight)}};
}

std::vector<Class> Classes() {
  const auto kind = [](HeldOutKind k) { return [k](const HeldOutPass& pass) { return pass.kind == k; }; };
  const auto part = [](HeldOutPart p) { return [p](const HeldOutPass& pass) { return pass.part == p; }; };
  const auto recompute = [](HeldOutRecompute r) {
    return
        [r](const HeldOutPass& pass) { return pass.kind == HeldOutKind::kBackward && pass.recompute == r; };
  };
  const auto tokens = [](int64_t least, int64_t most) {
    return [=](const HeldOutPass& pass) { return TokensOf(pass) >= least && TokensOf(pass) < most; };
  };
  return {{"forward", kind(HeldOutKind::kForward)},
          {"backward", kind(HeldOutKind::kBackward)},
          {"dX (backward, inputs)", kind(HeldOutKind::kBackwardInput)},
          {"dW (backward, weights)", kind(HeldOutKind::kBackwardWeight)},
          {"encoder layer", part(HeldOutPart::kEncoderLayer)},
          {"layer", part(HeldOutPart::kLayer)},
          {"dense layer", part(HeldOutPart::kDenseLayer)},
          {"head", part(HeldOutPart::kHead)},
          {"no recompute", recompute(HeldOutRecompute::kNone)},
          {"selective recompute", recompute(HeldOutRecompute::kSelective)},
          {"full recompute", recompute(HeldOutRecompute::kFull)},
          {"padded", [](const HeldOutPass& pass) { return !pass.packed; }},
          {"packed", [](const HeldOutPass& pass) { return pass.packed; }},
          {"below 256 tokens", tokens(0, 256)},
          {"256 to 1,023 tokens", tokens(256, 1024)},
          {"from 1,024 tokens on", tokens(1024, std::numeric_limits<int64_t>::max())}};
}

nlohmann::ordered_json ToJson(const ErrorDistribution& distribution) {
  return {{"of", distribution.of},
          {"passes", distribution.passes},
          {"median", distribution.median},
          {"percentile_95", distribution.percentile_95},
          {"worst", distribution.worst},
          {"of_time", distribution.of_time},
          {"median_bias", distribution.median_bias}};
}

std::string SignedPercent(double share) { return absl::StrFormat("%+.1f%%", 100 * share); }

}  // namespace

namespace {

// The layer that is measured is the first one, which has the window where some layers have none; the mean of
// all, of which the profile is, is that of models alone whose layers are alike.
core::AttentionWindows WindowsOfFirstLayer(const v1::ModelSpec& model) {
  core::AttentionWindows windows = core::WindowsOf(model);
  if (windows.windowed_layers > 0) windows.windowed_layers = windows.layers;
  return windows;
}

}  // namespace

absl::StatusOr<ProfileErrors> ErrorsOf(const v1::ProfileFile& file, const HeldOutTimes& times) {
  PENSTOCK_ASSIGN_OR_RETURN(
      const core::Profile profile,
      core::ProfileFromProto(file.has_alone() ? file.alone() : file.profile(),
                             core::ArchitectureOf(file.model()), WindowsOfFirstLayer(file.model())));
  const core::LayerModel model(profile, core::GroupShape());
  std::vector<ForetoldPass> passes;
  for (const HeldOutPass& pass : times.passes) {
    const std::optional<double> foretold = ForetoldNs(profile, model, pass);
    if (foretold.has_value() && pass.duration_ns > 0) passes.push_back({pass, *foretold});
  }
  if (passes.empty())
    return absl::FailedPreconditionError(
        "no measured shape is inside of the profile, which has no closed form");
  ProfileErrors errors = {.distributions = {DistributionOf("all", passes)},
                          .worst = *std::ranges::max_element(
                              passes, {}, [](const ForetoldPass& pass) { return std::abs(pass.error()); }),
                          .outside = times.passes.size() - passes.size(),
                          .disturbance = times.disturbance};
  std::vector<Class> classes = Classes();
  if (std::ranges::any_of(times.passes, IsShare))
    std::ranges::move(SharesOfContextRanks(), std::back_inserter(classes));
  for (const Class& of : classes) {
    std::vector<ForetoldPass> members;
    std::ranges::copy_if(passes, std::back_inserter(members),
                         [&](const ForetoldPass& pass) { return of.has(pass.pass); });
    if (!members.empty()) errors.distributions.push_back(DistributionOf(of.name, members));
  }
  return errors;
}

std::string Describe(const HeldOutPass& pass) {
  return absl::StrCat(NameOf(pass.part), ", ", NameOf(pass.kind),
                      pass.recompute == HeldOutRecompute::kNone
                          ? ""
                          : absl::StrCat(" with ", NameOf(pass.recompute), " recompute"),
                      pass.packed ? ", packed, " : ", padded, ", pass.samples.size(), " samples, ",
                      WithThousands(static_cast<double>(TokensOf(pass))), " tokens",
                      IsShare(pass) ? absl::StrCat(" on one of ", pass.contexts, " context ranks") : "");
}

std::string ToText(const ProfileErrors& errors) {
  TextTable table(
      {"error of the profile", "passes", "median", "95th percentile", "worst", "bias", "of the time"});
  for (const ErrorDistribution& of : errors.distributions) {
    table.AddRow({of.of, absl::StrCat(of.passes), Percent(of.median), Percent(of.percentile_95),
                  Percent(of.worst), SignedPercent(of.median_bias), Percent(of.of_time)});
  }
  const ForetoldPass& worst = errors.worst;
  return absl::StrCat(
      table.ToString(), "worst: ", Describe(worst.pass), ": measured ",
      Fixed(worst.pass.duration_ns / kNanosecondsPerMillisecond, 3), " ms, foretold ",
      Fixed(worst.foretold_ns / kNanosecondsPerMillisecond, 3), " ms\n",
      errors.outside > 0 ? absl::StrCat(errors.outside, " passes are outside of the profile's tables\n") : "",
      errors.disturbance.empty() ? "" : absl::StrCat("disturbed: ", errors.disturbance, "\n"));
}

nlohmann::ordered_json ToJson(const ProfileErrors& errors) {
  nlohmann::ordered_json json = {
      {"errors", nlohmann::ordered_json::array()},
      {"worst",
       {{"pass", Describe(errors.worst.pass)},
        {"measured_ms", errors.worst.pass.duration_ns / kNanosecondsPerMillisecond},
        {"foretold_ms", errors.worst.foretold_ns / kNanosecondsPerMillisecond}}},
      {"outside", errors.outside},
      {"disturbance", errors.disturbance}};
  for (const ErrorDistribution& of : errors.distributions) json["errors"].push_back(ToJson(of));
  return json;
}

}  // namespace penstock::cli
