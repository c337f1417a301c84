#include "worker/comm/groups.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

// `name`: of the option.
absl::Status CheckGroup(const CommunicatorOptions& options, const RankGroup& ranks, absl::string_view name) {
  RankGroup group = ranks;
  std::sort(group.begin(), group.end());
  const auto error = [&](absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(name, " (ranks ", Describe(ranks), "): ", problem));
  };
  if (group.empty()) return error("is empty");
  if (group.back() >= options.world_size) return error(absl::StrCat("world_size is ", options.world_size));
  if (std::adjacent_find(group.begin(), group.end()) != group.end()) return error("has a rank twice");
  if (!PositionIn(group, options.rank)) return error(absl::StrCat("lacks this rank, ", options.rank));
  return absl::OkStatus();
}

// `option`: whose passes they are.
absl::Status AddPassGroups(const CommunicatorOptions& options, const PassGroups& passes,
                           const std::string& option, std::vector<RankGroup>& groups) {
  const GroupPlace& place = passes.place;
  const auto add = [&](const char* kind, const RankGroup& ranks, int position, int size) -> absl::Status {
    if (size == 1) return absl::OkStatus();
    const std::string name = absl::StrCat(option, ".", kind);
    PENSTOCK_RETURN_IF_ERROR(CheckGroup(options, ranks, name));
    if (PositionIn(ranks, options.rank) != position || static_cast<int>(ranks.size()) != size) {
      return absl::InvalidArgumentError(absl::StrCat(name, " (ranks ", Describe(ranks), "): rank ",
                                                     options.rank, " is not at place ", position, " of ",
                                                     size));
    }
    groups.push_back(ranks);
    return absl::OkStatus();
  };
  PENSTOCK_RETURN_IF_ERROR(add("tensors", passes.tensors, place.tensor, place.tensors));
  PENSTOCK_RETURN_IF_ERROR(add("contexts", passes.contexts, place.context, place.contexts));
  return add("experts", passes.experts, place.expert(), place.experts);
}

}  // namespace

absl::StatusOr<std::vector<RankGroup>> GroupsToJoin(const CommunicatorOptions& options) {
  std::vector<RankGroup> groups;
  for (size_t i = 0; i < options.groups.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(CheckGroup(options, options.groups[i], absl::StrCat("groups[", i, "]")));
    if (options.groups[i].size() > 1 || options.join_groups_of_one) groups.push_back(options.groups[i]);
  }
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

std::vector<PassGroups> PassesOf(const CommunicatorOptions& options) {
  std::vector<PassGroups> passes = {options.passes};
  passes.insert(passes.end(), options.other_passes.begin(), options.other_passes.end());
  return passes;
}

absl::StatusOr<std::vector<RankGroup>> PassGroupsToJoin(const CommunicatorOptions& options) {
  std::vector<RankGroup> groups;
  PENSTOCK_RETURN_IF_ERROR(AddPassGroups(options, options.passes, "passes", groups));
  for (size_t i = 0; i < options.other_passes.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(
        AddPassGroups(options, options.other_passes[i], absl::StrCat("other_passes[", i, "]"), groups));
  }
  return groups;
}

absl::StatusOr<std::vector<RankGroup>> PassGroupsToJoin(const CommunicatorOptions& options,
                                                        const PassGroups& passes, const std::string& name) {
  if (!options.joins_passes_later)
    return absl::InvalidArgumentError(absl::StrCat(name, ": joins_passes_later is not set"));
  std::vector<RankGroup> groups;
  PENSTOCK_RETURN_IF_ERROR(AddPassGroups(options, passes, name, groups));
  return groups;
}

std::optional<int> PositionIn(const RankGroup& group, uint32_t rank) {
  const auto found = std::find(group.begin(), group.end(), rank);
  if (found == group.end()) return std::nullopt;
  return static_cast<int>(std::distance(group.begin(), found));
}

std::string Describe(const RankGroup& group) { return absl::StrJoin(group, ", "); }

}  // namespace penstock::worker
