#include "worker/profile/measure_copies.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// Float32 rows, more than caches hold, on a GPU more than is done in the time of a launch.
constexpr int64_t kCopiedWidth = 1024;
constexpr int64_t kCopiedRows = 8192;
constexpr int64_t kGpuCopiedRows = 65536;
constexpr int kCopyRounds = 6;

double Shortest(const MeasuredDevice& device, const std::function<void()>& run) {
  double shortest_ns = 1e18;
  for (int round = 0; round < kCopyRounds; ++round) {
    device.wait();
    const auto start = std::chrono::steady_clock::now();
    run();
    device.wait();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    shortest_ns = std::min(shortest_ns, taken.count());
  }
  return shortest_ns;
}

}  // namespace

absl::StatusOr<double> MeasureCopies(const MeasuredDevice& device) {
  return CallTorch("copies in memory", [&] {
    const int64_t rows = device.place.is_cpu() ? kCopiedRows : kGpuCopiedRows;
    const at::Tensor part =
        at::zeros({rows / 2, kCopiedWidth}, at::TensorOptions(device.place).dtype(at::kFloat));
    at::Tensor joined = at::empty({rows, kCopiedWidth}, part.options());
    const at::Tensor places = at::randperm(rows, at::TensorOptions(at::kLong)).to(device.place);
    const double end_to_end_ns = Shortest(device, [&] { at::cat_out(joined, {part, part}); });
    const double by_row_ns = Shortest(device, [&] {
      joined.index_copy_(0, places.narrow(0, 0, rows / 2), part);
      joined.index_copy_(0, places.narrow(0, rows / 2, rows / 2), part);
    });
    const auto bytes = static_cast<double>(2 * rows * kCopiedWidth) * sizeof(float);
    return bytes / (end_to_end_ns + by_row_ns) * 1e9;
  });
}

}  // namespace penstock::worker
