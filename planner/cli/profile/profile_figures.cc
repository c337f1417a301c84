#include "planner/cli/profile/profile_figures.h"

#include <array>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/cli/units.h"
#include "planner/core/contract/model_architecture.h"
#include "planner/core/contract/model_windows.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/cost/layer_model.h"
#include "planner/core/model/micro_batch.h"

namespace penstock::cli {
namespace {

constexpr uint32_t kShortest = 64;
constexpr uint32_t kFactor = 4;

std::vector<uint32_t> Lengths(uint32_t longest) {
  std::vector<uint32_t> lengths;
  for (uint64_t length = kShortest; length < longest; length *= kFactor)
    lengths.push_back(static_cast<uint32_t>(length));
  lengths.push_back(longest);
  return lengths;
}

// A sample of which every token but one is learnt.
core::TokenSums OneSample(const core::AttentionWindows& windows, bool t5, uint32_t length, bool padded) {
  const uint32_t source = t5 ? length : 0;
  const double loss = t5 ? length : length - 1.0;
  const double less_square = windows.LessSquare(length);
  if (padded) {
    return core::PaddedSums(1, static_cast<int32_t>(source), static_cast<int32_t>(length), loss, less_square);
  }
  core::TokenSums sums;
  core::AddPacked(
      {.source = source, .target = length, .loss = static_cast<uint32_t>(loss), .less_square = less_square},
      &sums);
  return sums;
}

// Packed, or as a row of a table where the profile has no closed form.
std::optional<core::LayerCosts> CostsOf(const core::LayerModel& model, const core::AttentionWindows& windows,
                                        bool t5, uint32_t length) {
  for (const bool padded : {false, true}) {
    core::LayerCosts costs;
    if (model.Layers(OneSample(windows, t5, length, padded), &costs)) return costs;
  }
  return std::nullopt;
}

constexpr std::array kKinds = {std::pair{core::kEncoder, "encoder layer"}, std::pair{core::kDecoder, "layer"},
                               std::pair{core::kDense, "dense layer"}, std::pair{core::kHead, "head"}};
constexpr std::array kBackward = {std::pair{core::kKeepAll, "backward"},
                                  std::pair{core::kKeepSelective, "backward with selective recompute"},
                                  std::pair{core::kKeepInput, "backward with full recompute"}};

// One figure of each length.
using FigureOf =
    std::function<std::optional<double>(const core::LayerCosts& costs, const core::TokenSums& sums)>;

class FigureMaker {
 public:
  FigureMaker(const core::Profile& profile, bool t5, std::vector<uint32_t> lengths)
      : profile_(profile), t5_(t5), model_(profile, core::GroupShape()) {
    figures_.lengths = std::move(lengths);
  }

  ProfileFigures Make() && {
    for (const auto& [kind, name] : kKinds) {
      if (!profile_.layers[kind].present) continue;
      const std::string of = t5_ && kind == core::kDecoder ? "decoder layer" : name;
      AddTimes(kind, of);
      Add(absl::StrCat(of, ", kept, MB"), [this, k = kind](const auto&, const core::TokenSums& sums) {
        return profile_.layers[k].stored[core::kKeepAll](sums) / kBytesPerMegabyte;
      });
    }
    return std::move(figures_);
  }

 private:
  void AddTimes(core::LayerKind kind, const std::string& of) {
    Add(absl::StrCat(of, ", forward, ms"), [kind](const core::LayerCosts& costs, const auto&) {
      return costs.forward[kind] / kNanosecondsPerMillisecond;
    });
    for (const auto& [level, name] : kBackward) {
      // The head is not recomputed.
      if (level != core::kKeepAll && kind == core::kHead) continue;
      if (level == core::kKeepSelective && !profile_.layers[kind].has_selective) continue;
      Add(absl::StrCat(of, ", ", name, ", ms"),
          [kind, l = level](const core::LayerCosts& costs, const auto&) {
            return costs.backward[kind][l] / kNanosecondsPerMillisecond;
          });
    }
  }

  void Add(const std::string& what, const FigureOf& figure) {
    ProfileFigures::Row& row = figures_.rows.emplace_back();
    row.what = what;
    for (const uint32_t length : figures_.lengths) {
      const std::optional<core::LayerCosts> costs = CostsOf(model_, profile_.windows, t5_, length);
      row.values.push_back(costs.has_value()
                               ? figure(*costs, OneSample(profile_.windows, t5_, length, /*padded=*/false))
                               : std::nullopt);
    }
  }

  const core::Profile& profile_;
  const bool t5_;
  const core::LayerModel model_;
  ProfileFigures figures_;
};

}  // namespace

absl::StatusOr<ProfileFigures> FiguresOf(const v1::ProfileFile& file) {
  return FiguresOf(file, Lengths(file.model().max_sequence_length()));
}

absl::StatusOr<ProfileFigures> FiguresOf(const v1::ProfileFile& file, const std::vector<uint32_t>& lengths) {
  const bool t5 = file.model().architecture() == v1::ARCHITECTURE_T5;
  PENSTOCK_ASSIGN_OR_RETURN(const core::Profile profile,
                            core::ProfileFromProto(file.profile(), core::ArchitectureOf(file.model()),
                                                   core::WindowsOf(file.model())));
  return FigureMaker(profile, t5, lengths).Make();
}

}  // namespace penstock::cli
