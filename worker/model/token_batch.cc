#include "worker/model/token_batch.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

int64_t SampleLength(const MicroBatch& shape, size_t sample) {
  return static_cast<int64_t>(shape.input_tokens[sample]) + shape.target_tokens[sample];
}

absl::Status SampleError(const MicroBatch& shape, size_t sample, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("sample ", shape.sample_ids[sample], ": ", problem));
}

// Where sample `i` begins in the flattened inputs.
int64_t Offset(const MicroBatch& shape, size_t sample) {
  return shape.layout == Layout::kPacked ? shape.target_cu_seqlens[sample]
                                         : static_cast<int64_t>(sample) * shape.target_length;
}

int64_t Room(const MicroBatch& shape, size_t sample) {
  return shape.layout == Layout::kPacked
             ? shape.target_cu_seqlens[sample + 1] - shape.target_cu_seqlens[sample]
             : shape.target_length;
}

absl::Status CheckShape(const MicroBatch& shape, size_t token_lists) {
  const size_t samples = shape.sample_ids.size();
  if (samples == 0) return absl::InvalidArgumentError("the micro-batch has no sample");
  if (shape.input_tokens.size() != samples || shape.target_tokens.size() != samples ||
      token_lists != samples) {
    return absl::InvalidArgumentError(absl::StrCat(samples, " samples, but ", shape.input_tokens.size(),
                                                   " input_tokens, ", shape.target_tokens.size(),
                                                   " target_tokens and ", token_lists, " token lists"));
  }
  if (shape.layout == Layout::kPacked &&
      (shape.target_cu_seqlens.size() != samples + 1 || shape.target_cu_seqlens[0] != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cu_seqlens: expected ", samples + 1, " values that begin with 0"));
  }
  if (shape.layout == Layout::kPadded && shape.rows != static_cast<int64_t>(samples)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows: ", shape.rows, ", but there are ", samples, " samples"));
  }
  return absl::OkStatus();
}

absl::Status CheckSample(const MicroBatch& shape, size_t sample, const std::vector<int32_t>& tokens,
                         int64_t vocab) {
  const int64_t length = SampleLength(shape, sample);
  const int64_t room = Room(shape, sample);
  if (shape.layout == Layout::kPacked ? room != length : room < length) {
    return SampleError(shape, sample, absl::StrCat(length, " tokens in a place for ", room));
  }
  if (static_cast<int64_t>(tokens.size()) < length) {
    return SampleError(shape, sample,
                       absl::StrCat(length, " tokens planned, the dataset has ", tokens.size()));
  }
  for (int64_t p = 0; p < length; ++p) {
    const int32_t token = tokens[static_cast<size_t>(p)];
    if (token >= 0 && token < vocab) continue;
    return SampleError(shape, sample,
                       absl::StrCat("token ", p, " has id ", token, ", the model's vocab is ", vocab,
                                    "; import the data with its tokenizer's ids or set vocab above them"));
  }
  return absl::OkStatus();
}

// The flat host arrays that become the tensors.
struct HostBatch {
  std::vector<int64_t> inputs;
  std::vector<int64_t> positions;
  std::vector<int64_t> loss_positions;
  std::vector<int64_t> labels;
};

void AddSample(const MicroBatch& shape, size_t sample, const std::vector<int32_t>& tokens, HostBatch& batch) {
  const int64_t offset = Offset(shape, sample);
  const int64_t length = SampleLength(shape, sample);
  for (int64_t p = 0; p < Room(shape, sample); ++p) batch.positions[offset + p] = p;
  for (int64_t p = 0; p < length; ++p) batch.inputs[offset + p] = tokens[p];
  const int64_t first = std::max<int64_t>(shape.input_tokens[sample], 1);
  for (int64_t p = first; p < length; ++p) {
    batch.loss_positions.push_back(offset + p - 1);
    batch.labels.push_back(tokens[p]);
  }
}

TokenBatch ToTensors(const HostBatch& host, at::IntArrayRef sizes, at::Device device) {
  const auto tensor = [&](const std::vector<int64_t>& values) {
    return at::tensor(values, at::kLong).to(device);
  };
  return {tensor(host.inputs).view(sizes), tensor(host.positions).view(sizes), tensor(host.loss_positions),
          tensor(host.labels)};
}

}  // namespace

absl::StatusOr<TokenBatch> MakeTokenBatch(const MicroBatch& shape,
                                          const std::vector<std::vector<int32_t>>& tokens, int64_t vocab,
                                          at::Device device) {
  PENSTOCK_RETURN_IF_ERROR(CheckShape(shape, tokens.size()));
  const std::vector<int64_t> sizes = shape.layout == Layout::kPacked
                                         ? std::vector<int64_t>{shape.target_cu_seqlens.back()}
                                         : std::vector<int64_t>{shape.rows, shape.target_length};
  const size_t computed = c10::multiply_integers(sizes);
  HostBatch host{std::vector<int64_t>(computed), std::vector<int64_t>(computed), {}, {}};
  for (size_t sample = 0; sample < tokens.size(); ++sample) {
    PENSTOCK_RETURN_IF_ERROR(CheckSample(shape, sample, tokens[sample], vocab));
    AddSample(shape, sample, tokens[sample], host);
  }
  return CallTorch("the tokens of a micro-batch", [&] { return ToTensors(host, sizes, device); });
}

}  // namespace penstock::worker
