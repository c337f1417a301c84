#include "planner/cli/up/device_list.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

constexpr absl::string_view kWhatToUse = "use cpu, simulated, cuda, cuda:0..3 or cuda:0,2,5";
// LibTorch numbers devices with a signed byte.
constexpr uint32_t kLastGpu = 127;

struct Range {
  uint32_t first = 0;
  uint32_t last = 0;
};

// "3" or "0..3".
absl::StatusOr<Range> ParseRange(absl::string_view text) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, absl::MaxSplits("..", 1));
  Range range;
  if (!absl::SimpleAtoi(ends.front(), &range.first) || !absl::SimpleAtoi(ends.back(), &range.last))
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no number of a GPU: ", kWhatToUse));
  if (range.first > range.last) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' ends before it begins: use cuda:", range.last, "..", range.first));
  }
  if (range.last <= kLastGpu) return range;
  return absl::InvalidArgumentError(
      absl::StrCat("there is no GPU ", range.last, ": they are numbered from 0 to ", kLastGpu, " at most"));
}

// "0,2,5..7".
absl::StatusOr<std::vector<uint32_t>> ParseNumbers(absl::string_view text) {
  std::vector<uint32_t> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    PENSTOCK_ASSIGN_OR_RETURN(const Range range, ParseRange(part));
    for (uint32_t number = range.first; number <= range.last; ++number) {
      if (std::find(numbers.begin(), numbers.end(), number) != numbers.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("GPU ", number, " is there twice: each runs one worker, name it once"));
      }
      numbers.push_back(number);
    }
  }
  return numbers;
}

uint32_t NumberOf(const DeviceList& devices, size_t place) {
  return devices.gpus.empty() ? static_cast<uint32_t>(place) : devices.gpus[place];
}

}  // namespace

absl::StatusOr<DeviceList> ParseDevices(absl::string_view text) {
  DeviceList devices;
  devices.name = absl::AsciiStrToLower(text);
  absl::string_view name = devices.name;
  if (name == "cpu") return devices;
  if (name == "simulated") {
    devices.kind = UpDevice::kSimulated;
    return devices;
  }
  devices.kind = UpDevice::kCuda;
  if (name == "cuda") return devices;
  if (!absl::ConsumePrefix(&name, "cuda:"))
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no device: ", kWhatToUse));
  PENSTOCK_ASSIGN_OR_RETURN(devices.gpus, ParseNumbers(name));
  return devices;
}

absl::StatusOr<std::vector<uint32_t>> GpuOfEachRank(const DeviceList& devices, uint32_t ranks) {
  if (!devices.gpus.empty() && devices.gpus.size() != ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", devices.name, ": ", devices.gpus.size(), " GPUs for ", ranks,
                     " workers (--pp x --dp x --cp x --tp); a worker has a GPU of its own: name ", ranks,
                     " of them, or change the mesh"));
  }
  std::vector<uint32_t> of_ranks;
  for (uint32_t rank = 0; rank < ranks; ++rank) of_ranks.push_back(NumberOf(devices, rank));
  return of_ranks;
}

absl::StatusOr<std::vector<uint32_t>> GpuOfEachRank(const DeviceList& devices,
                                                    const std::vector<std::string>& hosts) {
  std::map<std::string, size_t> workers;
  for (const std::string& host : hosts) ++workers[host];
  for (const auto& [host, count] : workers) {
    if (devices.gpus.empty() || devices.gpus.size() == count) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", devices.name, ": ", devices.gpus.size(), " GPUs of each host, but '", host,
                     "' runs ", count, " workers: give it slots=", devices.gpus.size(), " in --hosts and as ",
                     "many workers (--pp x --dp x --cp x --tp), or use --device cuda"));
  }
  std::map<std::string, size_t> placed;
  std::vector<uint32_t> of_ranks;
  of_ranks.reserve(hosts.size());
  for (const std::string& host : hosts) of_ranks.push_back(NumberOf(devices, placed[host]++));
  return of_ranks;
}

}  // namespace penstock::cli
