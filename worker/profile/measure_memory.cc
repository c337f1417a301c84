#include "worker/profile/measure_memory.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/least_squares/least_squares.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

constexpr int64_t kFewestMemoryTokens = 256;
constexpr int64_t kMostMemoryTokens = 4096;
constexpr size_t kMostMemoryShapes = 4;
constexpr size_t kFewestMemoryShapes = 2;
// Of a column of ones: two sides that differ less are not told apart.
constexpr double kLeastPivot = 1e-3;
// Worth a word in the profile.
constexpr double kFewPerCent = 0.05;

// Of one shape, in the order in which they are kept.
enum Figure : uint8_t { kNoneLevel, kSelectiveLevel, kFullLevel, kPeak, kSplitPeak, kFigures };
using Figures = std::array<TokenBytes LayerBytes::*, kFigures>;
constexpr Figures kMembers = {&LayerBytes::stored_none, &LayerBytes::stored_selective,
                              &LayerBytes::stored_full, &LayerBytes::peak, &LayerBytes::split_backward_peak};
constexpr std::array<const char*, kFigures> kNames = {"stored_none", "stored_selective", "stored_full",
                                                      "peak", "split_backward_peak"};

double Of(const TokenBytes& bytes, const TokenFigures& tokens) {
  return bytes.source * tokens.source + bytes.target * tokens.target;
}

// That with the least sum of squared relative errors; nothing where sides are not told apart.
std::optional<TokenBytes> Fit(absl::Span<const BytesPoint> points) {
  NormalEquations equations(2);
  for (const BytesPoint& point : points) {
    if (point.bytes <= 0) continue;
    equations.Add({point.tokens.source / point.bytes, point.tokens.target / point.bytes}, /*value=*/1,
                  /*weight=*/1);
  }
  const double source = equations.matrix[0], both = equations.matrix[1], target = equations.matrix[3];
  const double right_source = equations.right[0], right_target = equations.right[1];
  const auto only = [](double right, double square) { return square > 0 ? right / square : 0; };
  if (source == 0 || target == 0) return TokenBytes{only(right_source, source), only(right_target, target)};
  const double scale_source = std::sqrt(source);
  const double scale_target = std::sqrt(target);
  const double mixed = both / (scale_source * scale_target);
  const auto solved = SolvePositiveDefinite(
      {1, mixed, mixed, 1}, {right_source / scale_source, right_target / scale_target}, kLeastPivot);
  if (!solved.has_value()) return std::nullopt;
  const TokenBytes fit = {(*solved)[0] / scale_source, (*solved)[1] / scale_target};
  if (fit.source < 0) return TokenBytes{0, only(right_target, target)};
  if (fit.target < 0) return TokenBytes{only(right_source, source), 0};
  return fit;
}

absl::StatusOr<std::vector<double>> FiguresOfShape(StageRun& run, const MicroBatch& shape) {
  PENSTOCK_RETURN_IF_ERROR(run.Prepare(shape));
  std::vector<double> figures(kFigures, 0);
  const LayerRecompute levels[] = {{}, {.selective = 1}, {.full = 1}};
  double peak = 0;
  double split_peak = 0;
  for (size_t level = 0; level < std::size(levels); ++level) {
    PENSTOCK_ASSIGN_OR_RETURN(const PassBytes whole, run.Bytes({.recompute = levels[level]}));
    PENSTOCK_ASSIGN_OR_RETURN(const PassBytes split, run.Bytes({.recompute = levels[level], .split = true}));
    figures[level] = whole.kept;
    if (level == kNoneLevel) figures[kNoneLevel] = std::max(whole.kept, split.put_aside);
    peak = std::max(peak, whole.backward_peak);
    split_peak = std::max(split_peak, split.backward_peak);
  }
  // Plans add what is kept (execution.md, section 8).
  figures[kPeak] = peak - figures[kFullLevel];
  figures[kSplitPeak] = std::max(0.0, split_peak - figures[kNoneLevel]);
  return figures;
}

// Of both sides, where there are two.
bool IsLongestAlone(const MicroBatch& shape, int64_t longest) {
  if (shape.sample_ids.size() != 1 || shape.target_tokens.front() < longest) return false;
  return shape.input_tokens.front() == 0 || shape.input_tokens.front() >= longest;
}

TokenBytes Larger(const TokenBytes& one, const TokenBytes& other) {
  return {std::max(one.source, other.source), std::max(one.target, other.target)};
}

}  // namespace

TokenBytes BytesAbove(absl::Span<const BytesPoint> points, const TokenBytes& counted) {
  TokenBytes line = Fit(points).value_or(counted);
  double most = 0;
  for (const BytesPoint& point : points) {
    const double on_line = Of(line, point.tokens);
    if (on_line > 0) most = std::max(most, point.bytes / on_line);
  }
  return points.empty() ? counted : TokenBytes{line.source * most, line.target * most};
}

std::vector<MicroBatch> MemoryShapes(absl::Span<const MicroBatch> shapes, int64_t longest) {
  const auto takes_little_time = [](const MicroBatch& shape) {
    return shape.computed_tokens <= kMostMemoryTokens;
  };
  std::vector<MicroBatch> chosen;
  for (const MicroBatch& shape : shapes) {
    if (IsLongestAlone(shape, longest) && takes_little_time(shape)) chosen.push_back(shape);
  }
  for (auto shape = shapes.rbegin(); shape != shapes.rend() && chosen.size() < kMostMemoryShapes; ++shape) {
    if (takes_little_time(*shape) && shape->computed_tokens >= kFewestMemoryTokens &&
        !IsLongestAlone(*shape, longest))
      chosen.push_back(*shape);
  }
  return chosen;
}

absl::StatusOr<LayerBytes> MeasureLayerBytes(StageRun& run, absl::Span<const MicroBatch> shapes,
                                             const FiguresOfStage& figures, const LayerBytes& counted,
                                             int64_t longest, double budget_ns, const KeptPart& kept) {
  if (!run.CountsBytes()) return counted;
  PartFigures part(kept, run.clocks().budget);
  std::array<std::vector<BytesPoint>, kFigures> points;
  bool has_longest = false;
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (i >= kFewestMemoryShapes && part.SpentNs() > budget_ns) break;
    const absl::StatusOr<std::vector<double>> bytes =
        part.Get(absl::StrCat(i), kFigures, [&] { return FiguresOfShape(run, shapes[i]); });
    if (absl::IsResourceExhausted(bytes.status())) continue;
    PENSTOCK_RETURN_IF_ERROR(bytes.status());
    const TokenFigures tokens = figures(shapes[i], /*loss_tokens=*/0);
    for (size_t figure = 0; figure < kFigures; ++figure) points[figure].push_back({tokens, (*bytes)[figure]});
    has_longest = has_longest || IsLongestAlone(shapes[i], longest);
  }
  LayerBytes measured;
  for (size_t figure = 0; figure < kFigures; ++figure)
    measured.*kMembers[figure] = BytesAbove(points[figure], counted.*kMembers[figure]);
  if (!has_longest) {
    measured.peak = Larger(measured.peak, counted.peak);
    measured.split_backward_peak = Larger(measured.split_backward_peak, counted.split_backward_peak);
  }
  // By that plans know it for the peak of a layer that is made again (execution.md, section 8).
  measured.peak = Larger(measured.peak, measured.stored_none);
  return measured;
}

LayerBytes LargerOf(const LayerBytes& one, const LayerBytes& other) {
  LayerBytes larger;
  for (const auto member : kMembers) larger.*member = Larger(one.*member, other.*member);
  return larger;
}

std::string DifferencesOf(const LayerBytes& measured, const LayerBytes& counted) {
  constexpr TokenFigures kOfEach = {.source = 1, .target = 1};
  std::vector<std::string> differences;
  for (size_t figure = 0; figure < kFigures; ++figure) {
    const double said = Of(counted.*kMembers[figure], kOfEach);
    if (said <= 0) continue;
    const double times = Of(measured.*kMembers[figure], kOfEach) / said;
    if (std::abs(times - 1) > kFewPerCent)
      differences.push_back(absl::StrFormat("%s %.2f", kNames[figure], times));
  }
  if (differences.empty()) return "";
  return absl::StrCat(absl::StrJoin(differences, ", "), " times what is counted");
}

}  // namespace penstock::worker
