#include "common/dataset/token_weights_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dataset/weights_format.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr size_t kCodesTogether = 1 << 16;

absl::Status RemoveIfThere(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  return error ? absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove '", path, "'"))
               : absl::OkStatus();
}

}  // namespace

absl::Status CheckWeights(absl::Span<const float> weights, size_t target_tokens) {
  if (weights.empty()) return absl::OkStatus();
  if (weights.size() != target_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", weights.size(), " weights for ", target_tokens, " tokens of the target"));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (std::isfinite(weights[i]) && weights[i] >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("weight ", i, " of the target is ", weights[i], ": expected a number of at least 0"));
  }
  return absl::OkStatus();
}

absl::Status TokenWeightsWriter::Add(size_t input_tokens, size_t target_tokens,
                                     absl::Span<const float> weights) {
  const bool ones = std::ranges::all_of(weights, [](float weight) { return weight == 1; });
  tokens_ += input_tokens + target_tokens;
  const Run run = {static_cast<uint32_t>(input_tokens), static_cast<uint32_t>(target_tokens)};
  if (!codes_.has_value() && ones) {
    ones_.push_back(run);
    return absl::OkStatus();
  }
  if (!codes_.has_value()) PENSTOCK_RETURN_IF_ERROR(Begin());
  if (ones) return PutRun(run);
  PENSTOCK_RETURN_IF_ERROR(PutRun({run.input, 0}));
  return Put(weights.data(), weights.size());
}

absl::Status TokenWeightsWriter::Begin() {
  PENSTOCK_ASSIGN_OR_RETURN(codes_,
                            PartialFile::CreateFor(absl::StrCat(prefix_, ".weights"), ".codes.partial"));
  for (const Run& run : std::exchange(ones_, {})) PENSTOCK_RETURN_IF_ERROR(PutRun(run));
  return absl::OkStatus();
}

absl::Status TokenWeightsWriter::PutRun(const Run& run) {
  std::vector<float> weights(size_t{run.input} + run.target, 1);
  std::fill_n(weights.begin(), run.input, 0.0F);
  return Put(weights.data(), weights.size());
}

absl::Status TokenWeightsWriter::Put(const float* weights, size_t count) {
  std::vector<uint8_t> codes;
  for (size_t i = 0; i < count && !wide_; ++i) {
    const std::optional<uint8_t> code = CodeOf(weights[i]);
    if (code.has_value())
      codes.push_back(*code);
    else
      PENSTOCK_RETURN_IF_ERROR(Widen());
  }
  return wide_ ? codes_->Write(weights, count) : codes_->Write(codes.data(), codes.size());
}

std::optional<uint8_t> TokenWeightsWriter::CodeOf(float weight) {
  if (const auto known = code_of_.find(weight); known != code_of_.end()) return known->second;
  if (distinct_.size() == weights_format::kMostDistinct) return std::nullopt;
  const auto code = static_cast<uint8_t>(distinct_.size());
  distinct_.push_back(weight);
  code_of_[weight] = code;
  return code;
}

absl::Status TokenWeightsWriter::Widen() {
  PENSTOCK_ASSIGN_OR_RETURN(PartialFile wide,
                            PartialFile::CreateFor(absl::StrCat(prefix_, ".weights"), ".wide.partial"));
  std::vector<uint8_t> from(kCodesTogether);
  codes_->Rewind();
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const size_t count, codes_->Read(from.data(), from.size()));
    if (count == 0) break;
    std::vector<float> to(count);
    for (size_t i = 0; i < count; ++i) to[i] = distinct_[from[i]];
    PENSTOCK_RETURN_IF_ERROR(wide.Write(to.data(), count));
  }
  codes_ = std::move(wide);
  wide_ = true;
  distinct_.clear();
  return absl::OkStatus();
}

absl::Status TokenWeightsWriter::Finish(uint32_t index_crc32) {
  const std::string path = absl::StrCat(prefix_, ".weights");
  if (!codes_.has_value()) return RemoveIfThere(path);
  PENSTOCK_ASSIGN_OR_RETURN(PartialFile file, PartialFile::CreateFor(path, ".partial"));
  weights_format::Header header = {
      .tokens = tokens_, .index_crc32 = index_crc32, .distinct = static_cast<uint32_t>(distinct_.size())};
  std::memcpy(header.magic, weights_format::kMagic.data(), sizeof(header.magic));
  PENSTOCK_RETURN_IF_ERROR(file.Write(&header, 1));
  PENSTOCK_RETURN_IF_ERROR(file.Write(distinct_.data(), distinct_.size()));
  std::vector<char> piece(kCodesTogether);
  codes_->Rewind();
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const size_t count, codes_->Read(piece.data(), piece.size()));
    if (count == 0) break;
    PENSTOCK_RETURN_IF_ERROR(file.Write(piece.data(), count));
  }
  PENSTOCK_RETURN_IF_ERROR(file.Sync());
  return file.MoveIntoPlace();
}

}  // namespace penstock
