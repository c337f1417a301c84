#include "common/simulation/simulation_options.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// Wider than any cluster, and narrow enough that times stay exact.
constexpr double kMostFactor = 1e4;
constexpr double kMostSeconds = 1e6;
constexpr double kMostTimeScale = 1e3;
// Beyond this it is no noise.
constexpr double kMostNoise = 1;

absl::Status BadForm(absl::string_view flag, const std::string& text, absl::string_view form) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " '", text, "': give ", form));
}

absl::Status CheckRange(absl::string_view flag, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();  // NaN is not
  return absl::InvalidArgumentError(absl::StrCat(flag, " ", value, ": use ", least, " to ", most));
}

absl::Status CheckRank(absl::string_view flag, uint32_t rank, uint32_t ranks) {
  if (rank < ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": there is no rank ", rank, ", the job has ranks 0 to ", ranks - 1));
}

// Enough digits to read the same number again.
std::string Number(double value) { return absl::StrFormat("%.17g", value); }

}  // namespace

absl::StatusOr<SlowRank> ParseSlowRank(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  SlowRank slow;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &slow.rank) && absl::SimpleAtod(parts[1], &slow.factor))
    return slow;
  return BadForm("--slow-rank", text, "RANK:FACTOR, e.g. 3:1.5");
}

absl::StatusOr<SlowLink> ParseSlowLink(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::ByAnyChar("-:"));
  SlowLink slow;
  if (parts.size() == 3 && absl::SimpleAtoi(parts[0], &slow.a) && absl::SimpleAtoi(parts[1], &slow.b) &&
      absl::SimpleAtod(parts[2], &slow.factor))
    return slow;
  return BadForm("--slow-link", text, "RANK-RANK:FACTOR, e.g. 2-3:4");
}

absl::StatusOr<Stall> ParseStall(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  Stall stall;
  if (parts.size() == 3 && absl::SimpleAtoi(parts[0], &stall.rank) &&
      absl::SimpleAtoi(parts[1], &stall.iteration) && absl::SimpleAtod(parts[2], &stall.seconds))
    return stall;
  return BadForm("--stall", text, "RANK:ITERATION:SECONDS, e.g. 5:10:2.5");
}

absl::StatusOr<HostStall> ParseHostStall(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  HostStall stall;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &stall.rank) &&
      absl::SimpleAtod(parts[1], &stall.seconds))
    return stall;
  return BadForm("--host-stall", text, "RANK:SECONDS, e.g. 5:0.01");
}

absl::Status CheckSimulation(const SimulationOptions& options, uint32_t ranks) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--time-scale", options.time_scale, 0, kMostTimeScale));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("--noise", options.noise, 0, kMostNoise));
  for (const SlowRank& slow : options.slow_ranks) {
    PENSTOCK_RETURN_IF_ERROR(CheckRank("--slow-rank", slow.rank, ranks));
    PENSTOCK_RETURN_IF_ERROR(CheckRange("--slow-rank: factor", slow.factor, 0, kMostFactor));
  }
  for (const SlowLink& slow : options.slow_links) {
    PENSTOCK_RETURN_IF_ERROR(CheckRank("--slow-link", slow.a, ranks));
    PENSTOCK_RETURN_IF_ERROR(CheckRank("--slow-link", slow.b, ranks));
    if (slow.a == slow.b) {
      return absl::InvalidArgumentError(absl::StrCat("--slow-link: ", slow.a, "-", slow.b, " is no link"));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckRange("--slow-link: factor", slow.factor, 0, kMostFactor));
  }
  for (const Stall& stall : options.stalls) {
    PENSTOCK_RETURN_IF_ERROR(CheckRank("--stall", stall.rank, ranks));
    PENSTOCK_RETURN_IF_ERROR(CheckRange("--stall: seconds", stall.seconds, 0, kMostSeconds));
  }
  for (const HostStall& stall : options.host_stalls) {
    PENSTOCK_RETURN_IF_ERROR(CheckRank("--host-stall", stall.rank, ranks));
    PENSTOCK_RETURN_IF_ERROR(CheckRange("--host-stall: seconds", stall.seconds, 0, kMostSeconds));
  }
  return absl::OkStatus();
}

std::vector<std::string> SimulationArguments(const SimulationOptions& options) {
  std::vector<std::string> arguments = {absl::StrCat("--time-scale=", Number(options.time_scale)),
                                        absl::StrCat("--noise=", Number(options.noise)),
                                        absl::StrCat("--noise-seed=", options.noise_seed)};
  for (const SlowRank& slow : options.slow_ranks) {
    arguments.push_back(absl::StrCat("--slow-rank=", slow.rank, ":", Number(slow.factor)));
  }
  for (const SlowLink& slow : options.slow_links) {
    arguments.push_back(absl::StrCat("--slow-link=", slow.a, "-", slow.b, ":", Number(slow.factor)));
  }
  for (const Stall& stall : options.stalls) {
    arguments.push_back(
        absl::StrCat("--stall=", stall.rank, ":", stall.iteration, ":", Number(stall.seconds)));
  }
  for (const HostStall& stall : options.host_stalls)
    arguments.push_back(absl::StrCat("--host-stall=", stall.rank, ":", Number(stall.seconds)));
  return arguments;
}

}  // namespace penstock
