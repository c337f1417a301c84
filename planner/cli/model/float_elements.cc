#include "planner/cli/model/float_elements.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

// A format of 16 bits: a sign, so many bits of exponent, the rest of the fraction (IEEE 754).
struct HalfFormat {
  int exponent_bits;
  int fraction_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t infinity() const { return static_cast<uint16_t>(((1U << exponent_bits) - 1) << fraction_bits); }
};

constexpr HalfFormat kBfloat16 = {8, 7};
constexpr HalfFormat kFloat16 = {5, 10};

double DoubleOf(uint16_t bits, const HalfFormat& format) {
  constexpr uint16_t kSign = 0x8000;
  const double sign = (bits & kSign) != 0 ? -1 : 1;
  const auto magnitude = static_cast<uint16_t>(bits & ~kSign);
  const int fraction = magnitude & ((1 << format.fraction_bits) - 1);
  const int exponent = magnitude >> format.fraction_bits;
  if (magnitude == format.infinity()) return sign * INFINITY;
  if (magnitude > format.infinity()) return NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - format.bias() - format.fraction_bits);
  return sign *
         std::ldexp(fraction + (1 << format.fraction_bits), exponent - format.bias() - format.fraction_bits);
}

uint16_t HalfOf(double value, const HalfFormat& format) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | format.infinity() | 1);
  const double size = std::fabs(value);
  if (size == 0) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);
  // Of the leading bit; below the smallest normal number steps stay as they are there.
  exponent = std::max(exponent - 1, 1 - format.bias());
  const double steps = std::nearbyint(std::ldexp(size, format.fraction_bits - exponent));
  // A carry into the exponent is what the next number has.
  const double whole =
      static_cast<double>((exponent + format.bias() - 1)) * (1 << format.fraction_bits) + steps;
  if (!(whole < format.infinity())) return static_cast<uint16_t>(sign | format.infinity());
  return static_cast<uint16_t>(sign | static_cast<uint16_t>(whole));
}

template <typename Stored, typename Convert>
std::vector<double> Read(absl::string_view bytes, const Convert& convert) {
  std::vector<double> values(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(stored);
  }
  return values;
}

template <typename Stored, typename Convert>
std::string Written(const std::vector<double>& values, const Convert& convert) {
  std::string bytes(values.size() * sizeof(Stored), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof(Stored), &stored, sizeof(Stored));
  }
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> ReadBytes(const FoundTensor& tensor) {
  const std::vector<int64_t>& shape = tensor.parts.empty() ? tensor.tensor->shape : tensor.shape;
  uint64_t elements = 1;
  for (const int64_t size : shape) elements *= static_cast<uint64_t>(size);
  std::string bytes(elements * ElementBytesOf(tensor.tensor->type), '\0');
  PENSTOCK_RETURN_IF_ERROR(tensor.Read(0, absl::MakeSpan(bytes.data(), bytes.size())));
  return bytes;
}

std::vector<double> ToDoubles(absl::string_view bytes, absl::string_view type) {
  if (type == "F64") return Read<double>(bytes, [](double value) { return value; });
  if (type == "F32") return Read<float>(bytes, [](float value) { return double{value}; });
  const HalfFormat& format = type == "BF16" ? kBfloat16 : kFloat16;
  return Read<uint16_t>(bytes, [&](uint16_t bits) { return DoubleOf(bits, format); });
}

std::string FromDoubles(const std::vector<double>& values, absl::string_view type) {
  if (type == "F64") return Written<double>(values, [](double value) { return value; });
  if (type == "F32") return Written<float>(values, [](double value) { return static_cast<float>(value); });
  const HalfFormat& format = type == "BF16" ? kBfloat16 : kFloat16;
  return Written<uint16_t>(values, [&](double value) { return HalfOf(value, format); });
}

}  // namespace penstock::cli
