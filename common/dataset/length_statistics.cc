#include "common/dataset/length_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock {
namespace {

constexpr double kFractions[] = {0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1};

LengthClass ClassOf(uint32_t tokens) {
  if (tokens == 0) return {};
  const uint32_t first = std::bit_floor(tokens);
  return {first, first + (first - 1), 0, 0};
}

// `sorted` is not empty.
std::vector<LengthClass> MakeHistogram(const std::vector<uint32_t>& sorted) {
  std::vector<LengthClass> histogram = {ClassOf(sorted.front())};
  for (uint32_t tokens : sorted) {
    while (histogram.back().last < tokens) histogram.push_back(ClassOf(histogram.back().last + 1));
    ++histogram.back().samples;
    histogram.back().tokens += tokens;
  }
  return histogram;
}

}  // namespace

LengthStatistics SummarizeLengths(std::vector<uint32_t> lengths) {
  LengthStatistics statistics;
  if (lengths.empty()) return statistics;
  std::sort(lengths.begin(), lengths.end());
  statistics.samples = lengths.size();
  for (uint32_t tokens : lengths) statistics.tokens += tokens;
  statistics.mean = static_cast<double>(statistics.tokens) / static_cast<double>(lengths.size());
  for (double fraction : kFractions) {
    const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(lengths.size())));
    statistics.quantiles.push_back({fraction, lengths[std::max<size_t>(rank, 1) - 1]});
  }
  statistics.histogram = MakeHistogram(lengths);
  return statistics;
}

}  // namespace penstock
