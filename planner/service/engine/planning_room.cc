#include "planner/service/engine/planning_room.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace penstock {
namespace {

std::string Mebibytes(int64_t bytes) {
  constexpr double kMebibyte = 1 << 20;
  return absl::StrFormat("%.0f MiB", static_cast<double>(bytes) / kMebibyte);
}

// What does not fit, and its limit.
std::string Excess(const core::PlanningFootprint& footprint, const core::PlanningRoom& room) {
  if (footprint.planning_bytes > room.planning_bytes) {
    return absl::StrCat("planning takes about ", Mebibytes(footprint.planning_bytes),
                        ", and this planner plans within ", Mebibytes(room.planning_bytes),
                        " (half of --memory)");
  }
  if (footprint.program_message_bytes > room.program_message_bytes) {
    return absl::StrCat("the largest program would be a message of about ",
                        Mebibytes(footprint.program_message_bytes), ", the limit is ",
                        Mebibytes(room.program_message_bytes));
  }
  if (footprint.plan_message_bytes > room.plan_message_bytes) {
    return absl::StrCat("the plan would be a message of about ", Mebibytes(footprint.plan_message_bytes),
                        ", the limit is ", Mebibytes(room.plan_message_bytes));
  }
  if (footprint.full_plan_message_bytes > room.full_plan_message_bytes) {
    return absl::StrCat("the plan would be a message of about ", Mebibytes(footprint.full_plan_message_bytes),
                        ", the limit is ", Mebibytes(room.full_plan_message_bytes),
                        " (a reader of compact programs, compact_version, would be sent about ",
                        Mebibytes(footprint.plan_message_bytes), ")");
  }
  return absl::StrCat("the plan takes about ", Mebibytes(footprint.plan_bytes), ", the limit is ",
                      Mebibytes(room.plan_bytes));
}

}  // namespace

absl::Status CheckRoom(absl::string_view what, const core::PlanningShape& shape,
                       const core::PlanningRoom& room) {
  const core::PlanningFootprint footprint = core::FootprintOf(shape);
  if (core::Fits(footprint, room)) return absl::OkStatus();
  const int64_t most = core::MostSamples(shape, room);
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", shape.samples, " samples of these lengths on ", shape.stages, " stages and ",
                   shape.replicas, " replicas are too many: ", Excess(footprint, room), "; ",
                   most > 0 ? absl::StrCat("a batch of ", most, " such samples would do")
                            : "not even one such sample would do: use fewer ranks"));
}

}  // namespace penstock
