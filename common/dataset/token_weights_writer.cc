#include "common/dataset/token_weights_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dataset/weights_format.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr size_t kCodesTogether = 1 << 16;
constexpr const char* kCodesExtension = ".codes.partial";
constexpr const char* kWideWeightsExtension = ".wide.partial";

std::string WeightsOf(const std::string& prefix) { return absl::StrCat(prefix, ".weights"); }

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

absl::Status TokenWeightsWriter::OpenAt(const TokenWeightsMark& mark) {
  tokens_ = mark.tokens;
  wide_ = mark.wide;
  distinct_ = mark.distinct;
  for (size_t i = 0; i < distinct_.size(); ++i) code_of_[distinct_[i]] = static_cast<uint8_t>(i);
  if (!mark.begun) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(
      file_,
      PartialFile::OpenAt(WeightsOf(prefix_), wide_ ? kWideWeightsExtension : kCodesExtension, mark.file));
  return absl::OkStatus();
}

absl::Status TokenWeightsWriter::Add(const SampleLength& length, absl::Span<const float> weights) {
  const bool ones = std::ranges::all_of(weights, [](float weight) { return weight == 1; });
  tokens_ += uint64_t{length.input} + length.target;
  if (!file_.has_value() && ones) return absl::OkStatus();
  if (!file_.has_value()) PENSTOCK_RETURN_IF_ERROR(Begin());
  if (ones) return PutOnes(length);
  PENSTOCK_RETURN_IF_ERROR(PutOnes({.input = length.input, .target = 0}));
  return Put(weights.data(), weights.size());
}

absl::Status TokenWeightsWriter::Begin() {
  PENSTOCK_ASSIGN_OR_RETURN(file_, PartialFile::CreateFor(WeightsOf(prefix_), kCodesExtension));
  return before_.ForEach([this](const SampleLength& length) { return PutOnes(length); });
}

absl::Status TokenWeightsWriter::PutOnes(const SampleLength& length) {
  std::vector<float> weights(size_t{length.input} + length.target, 1);
  std::fill_n(weights.begin(), length.input, 0.0F);
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
  return wide_ ? file_->Write(weights, count) : file_->Write(codes.data(), codes.size());
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
                            PartialFile::CreateFor(WeightsOf(prefix_), kWideWeightsExtension));
  std::vector<uint8_t> from(kCodesTogether);
  file_->Rewind();
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const size_t count, file_->Read(from.data(), from.size()));
    if (count == 0) break;
    std::vector<float> to(count);
    for (size_t i = 0; i < count; ++i) to[i] = distinct_[from[i]];
    PENSTOCK_RETURN_IF_ERROR(wide.Write(to.data(), count));
  }
  PENSTOCK_RETURN_IF_ERROR(file_->Sync());
  codes_ = std::exchange(file_, std::move(wide));
  wide_ = true;
  distinct_.clear();
  return absl::OkStatus();
}

TokenWeightsMark TokenWeightsWriter::Mark() const {
  return {.tokens = tokens_,
          .begun = file_.has_value(),
          .wide = wide_,
          .file = file_.has_value() ? file_->mark() : FileMark(),
          .distinct = distinct_};
}

absl::Status TokenWeightsWriter::Sync() { return file_.has_value() ? file_->Sync() : absl::OkStatus(); }

void TokenWeightsWriter::Keep() {
  for (std::optional<PartialFile>* file : {&file_, &codes_})
    if (file->has_value()) (*file)->Keep();
}

absl::Status TokenWeightsWriter::Finish(uint32_t index_crc32) {
  PENSTOCK_RETURN_IF_ERROR(file_.has_value() ? WriteInPlace(index_crc32) : RemoveFile(WeightsOf(prefix_)));
  for (std::optional<PartialFile>* file : {&file_, &codes_})
    if (file->has_value()) (*file)->Discard();
  return RemoveUnfinished(prefix_);
}

absl::Status TokenWeightsWriter::WriteInPlace(uint32_t index_crc32) {
  PENSTOCK_ASSIGN_OR_RETURN(PartialFile file, PartialFile::CreateFor(WeightsOf(prefix_), ".partial"));
  weights_format::Header header = {
      .tokens = tokens_, .index_crc32 = index_crc32, .distinct = static_cast<uint32_t>(distinct_.size())};
  std::memcpy(header.magic, weights_format::kMagic.data(), sizeof(header.magic));
  PENSTOCK_RETURN_IF_ERROR(file.Write(&header, 1));
  PENSTOCK_RETURN_IF_ERROR(file.Write(distinct_.data(), distinct_.size()));
  std::vector<char> piece(kCodesTogether);
  file_->Rewind();
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const size_t count, file_->Read(piece.data(), piece.size()));
    if (count == 0) break;
    PENSTOCK_RETURN_IF_ERROR(file.Write(piece.data(), count));
  }
  PENSTOCK_RETURN_IF_ERROR(file.Sync());
  return file.MoveIntoPlace();
}

absl::Status TokenWeightsWriter::RemoveUnfinished(const std::string& prefix) {
  for (const char* extension : {".partial", kCodesExtension, kWideWeightsExtension})
    PENSTOCK_RETURN_IF_ERROR(PartialFile::Remove(WeightsOf(prefix), extension));
  return absl::OkStatus();
}

}  // namespace penstock
