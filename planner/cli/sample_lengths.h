// Sample lengths from CSV, and how samples are cut to a maximum length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/indexed_dataset.h"
#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// Data rows first, ..., last - 1.
struct RowRange {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t size() const { return last - first; }
};

// "0:256". Possible errors: INVALID_ARGUMENT, naming --rows.
absl::StatusOr<RowRange> ParseRows(const std::string& text);

// Rows of a CSV file, plain or gzip, with a header that names columns `input_tokens` and `target_tokens`, or
// `tokens` (learnt whole); others are ignored. Possible errors: NOT_FOUND (the file), INVALID_ARGUMENT (names
// the file and the line), OUT_OF_RANGE (fewer rows).
absl::StatusOr<std::vector<SampleLength>> ReadLengths(const std::string& path, const RowRange& rows);

// All rows. Possible errors: NOT_FOUND (the file), INVALID_ARGUMENT (names the file and the line).
absl::StatusOr<std::vector<SampleLength>> ReadAllLengths(const std::string& path);

// What of a sample is left out that is too long.
enum class Cut : uint8_t {
  // Decoder-only: the input loses its end, so that what is learnt stays, then the target its end.
  // Encoder-decoder: each side loses its end.
  kInputEnd,
  // The same with the start of the input: what is nearest to the target stays.
  kInputStart,
  // Decoder-only: the target loses its end, down to one token, then the input its start. Encoder-decoder:
  // as kInputStart.
  kTargetEnd,
  // All of it.
  kDrop,
};

// Longest samples; 0 means no limit.
struct LengthLimits {
  // Decoder-only: of input and target together. Encoder-decoder: of each that has no limit of its own.
  uint32_t max_length = 0;
  uint32_t max_input = 0;
  uint32_t max_target = 0;
  Cut cut = Cut::kInputEnd;

  bool operator==(const LengthLimits&) const = default;
};

// What is left of the sample; nullopt: it is left out.
std::optional<SampleLength> CutToLimits(const SampleLength& length, v1::Architecture architecture,
                                        const LengthLimits& limits);

// Of a sample as it is left: the tokens that the loss counts. A decoder alone predicts nothing of the first
// token that it sees.
uint32_t LearntTokens(const SampleLength& left, v1::Architecture architecture);

// Of a sample as it is left: what it weighs in the loss, and how many of the tokens that the loss counts
// weigh something. `weights`: of its target's tokens before the cut, which takes the target's end.
struct SampleLoss {
  double weight = 0;
  uint32_t learnt = 0;
};
SampleLoss LossOf(const SampleLength& left, v1::Architecture architecture, absl::Span<const float> weights);

}  // namespace penstock::cli
