#include "planner/cli/rank_memory_flag.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"
#include "planner/cli/units.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/rank_memory.h"

namespace penstock::cli {
namespace {

constexpr char kNone[] = "none";

absl::Status WrongPart(absl::string_view part, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", part, "' ", why, "; give RANK:MB or FIRST-LAST:MB, as 3:40000,4-7:141000, or none"));
}

// "3:40000" or "4-7:141000".
absl::Status AddPart(absl::string_view part, std::vector<RankMemoryFlag::Limit>* limits) {
  const std::vector<absl::string_view> words = absl::StrSplit(part, ':');
  double megabytes = 0;
  if (words.size() != 2 || !absl::SimpleAtod(words[1], &megabytes))
    return WrongPart(part, "is no memory of ranks");
  // Also what is no number.
  if (!(megabytes > 0 && megabytes <= Megabytes(core::kMostMemoryBytes)) || BytesOfMegabytes(megabytes) < 1)
    return WrongPart(part,
                     absl::StrCat("is not above 0 and at most ", Megabytes(core::kMostMemoryBytes), " MB"));
  const std::vector<absl::string_view> ends = absl::StrSplit(words[0], '-');
  uint32_t first = 0, last = 0;
  const bool are_ranks = ends.size() <= 2 && absl::SimpleAtoi(ends.front(), &first) &&
                         absl::SimpleAtoi(ends.back(), &last) && first <= last && last < core::kMostRanks;
  if (!are_ranks) return WrongPart(part, absl::StrCat("names no ranks from 0 to ", core::kMostRanks - 1));
  for (uint32_t rank = first; rank <= last; ++rank)
    limits->push_back({.rank = rank, .bytes = BytesOfMegabytes(megabytes)});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RankMemoryFlag::Limit>> ParseRankMemory(const std::string& text) {
  std::vector<RankMemoryFlag::Limit> limits;
  if (text == kNone) return limits;
  for (const absl::string_view part : absl::StrSplit(text, ','))
    PENSTOCK_RETURN_IF_ERROR(AddPart(part, &limits));
  std::ranges::stable_sort(limits, {}, &RankMemoryFlag::Limit::rank);
  const auto twice = std::ranges::adjacent_find(limits, {}, &RankMemoryFlag::Limit::rank);
  if (twice != limits.end()) return WrongPart(text, absl::StrCat("names rank ", twice->rank, " twice"));
  return limits;
}

}  // namespace

void RankMemoryFlag::AddTo(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--rank-memory-mb",
          [this](const std::string& text) { limits = ParseRankMemory(text).value_or(std::vector<Limit>()); },
          "Memory of single ranks, millions of bytes, where it is more or less than that of --memory-mb, by "
          "rank "
          "(none)")
      ->check([](const std::string& text) { return std::string(ParseRankMemory(text).status().message()); })
      ->option_text("RANK:MB,FIRST-LAST:MB,...|none");
}

void RankMemoryFlag::AddTo(v1::PlanningOptions* options) const {
  for (const Limit& limit : limits) {
    v1::RankMemoryLimit* own = options->add_rank_memory_limits();
    own->set_rank(limit.rank);
    own->set_bytes(limit.bytes);
  }
}

void RankMemoryFlag::UseLeastOf(v1::JobSpec* job) const {
  if (only_least) core::UseLeastMemory(job);
}

}  // namespace penstock::cli
