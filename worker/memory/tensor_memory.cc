#include "worker/memory/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>

#include <atomic>
#include <cstring>

namespace penstock::worker {
namespace {

// Before each block lies its size, in as many bytes as keep tensors aligned.
constexpr size_t kHeader = c10::gAlignment;
static_assert(kHeader >= sizeof(size_t));

class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, c10::Device(c10::kCPU)};
    char* block = static_cast<char*>(c10::alloc_cpu(bytes + kHeader));
    std::memcpy(block, &bytes, sizeof(bytes));
    Take(static_cast<int64_t>(bytes));
    return {block + kHeader, block + kHeader, &Free, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }

  static int64_t bytes() { return bytes_; }
  static int64_t peak() { return peak_; }
  static void ResetPeak() { peak_ = bytes_.load(); }

 private:
  static void Take(int64_t bytes) {
    const int64_t now = bytes_ += bytes;
    int64_t peak = peak_;
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
  }

  static void Free(void* data) {
    if (data == nullptr) return;
    char* block = static_cast<char*>(data) - kHeader;
    size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof(bytes));
    bytes_ -= static_cast<int64_t>(bytes);
    c10::free_cpu(block);
  }

  static inline std::atomic<int64_t> bytes_ = 0;
  static inline std::atomic<int64_t> peak_ = 0;
};

// Of all sizes of blocks.
constexpr auto kAllBlocks = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

c10::CachingDeviceAllocator::DeviceStats StatisticsOf(c10::Device device) {
  return c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
}

}  // namespace

void CountCpuTensors() {
  // Tensors may outlive every object of static duration.
  static auto& allocator = *new CountingAllocator;
  c10::SetAllocator(c10::kCPU, &allocator, /*priority=*/1);
}

// Tensors on the meta device have shapes and no memory.
int64_t TensorBytes(c10::Device device) {
  if (device.is_meta()) return 0;
  if (device.is_cpu()) return CountingAllocator::bytes();
  return StatisticsOf(device).allocated_bytes[kAllBlocks].current;
}

int64_t PeakTensorBytes(c10::Device device) {
  if (device.is_meta()) return 0;
  if (device.is_cpu()) return CountingAllocator::peak();
  return StatisticsOf(device).allocated_bytes[kAllBlocks].peak;
}

void ResetPeakTensorBytes(c10::Device device) {
  if (device.is_meta()) return;
  if (device.is_cpu()) return CountingAllocator::ResetPeak();
  c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

}  // namespace penstock::worker
