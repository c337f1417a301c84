#include "worker/model/attention.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace penstock::worker {
namespace {

constexpr int64_t kParts = 3;  // query, key, value

std::vector<SampleRun> FindRuns(const std::vector<int32_t>& cu_seqlens) {
  std::vector<SampleRun> runs;
  for (size_t i = 1; i < cu_seqlens.size(); ++i) {
    const int64_t length = cu_seqlens[i] - cu_seqlens[i - 1];
    if (runs.empty() || runs.back().length != length) runs.push_back({0, length});
    ++runs.back().samples;
  }
  return runs;
}

// [samples * length, 3 * inner] or [samples, length, 3 * inner] to [samples * length, inner].
at::Tensor AttendRectangle(const at::Tensor& qkv, int64_t samples, int64_t length, int64_t heads) {
  // [3, samples, heads, length, width]
  const at::Tensor parts = qkv.reshape({samples, length, kParts, heads, -1}).permute({2, 0, 3, 1, 4});
  const at::Tensor attended = at::scaled_dot_product_attention(
      parts.select(0, 0), parts.select(0, 1), parts.select(0, 2), /*attn_mask=*/{}, /*dropout_p=*/0.0,
      /*is_causal=*/true);
  return attended.transpose(1, 2).reshape({samples * length, -1});
}

// One split for all samples: its backward pass is one concatenation, where narrow() would make a full tensor
// of zeros for each sample.
at::Tensor AttendRuns(const at::Tensor& qkv, int64_t heads, const std::vector<SampleRun>& runs) {
  if (runs.size() == 1) return AttendRectangle(qkv, runs[0].samples, runs[0].length, heads);
  std::vector<int64_t> sizes;
  for (const SampleRun& run : runs) sizes.push_back(run.samples * run.length);
  std::vector<at::Tensor> pieces = qkv.split_with_sizes(sizes, 0);
  for (size_t i = 0; i < runs.size(); ++i) {
    pieces[i] = AttendRectangle(pieces[i], runs[i].samples, runs[i].length, heads);
  }
  return at::cat(pieces, 0);
}

at::Tensor AttendFlash(const at::Tensor& qkv, int64_t heads, const AttentionShape& shape) {
  const at::Tensor parts = qkv.view({qkv.size(0), kParts, heads, -1});
  return FlashAttention(parts.select(1, 0), parts.select(1, 1), parts.select(1, 2), shape.cu_seqlens,
                        shape.longest)
      .flatten(1);
}

}  // namespace

AttentionShape MakeAttentionShape(const MicroBatch& shape, at::ScalarType type, at::Device device) {
  AttentionShape result;
  result.layout = shape.layout;
  result.rows = shape.rows;
  result.length = shape.target_length;
  if (shape.layout == Layout::kPadded) return result;
  result.runs = FindRuns(shape.target_cu_seqlens);
  for (const SampleRun& run : result.runs) result.longest = std::max(result.longest, run.length);
  if (FlashAttentionSupports(type, device)) {
    result.cu_seqlens = at::tensor(shape.target_cu_seqlens, at::kInt).to(device);
  }
  return result;
}

at::Tensor CausalAttention(const at::Tensor& qkv, int64_t heads, const AttentionShape& shape) {
  if (shape.layout == Layout::kPacked) {
    return shape.cu_seqlens.defined() ? AttendFlash(qkv, heads, shape) : AttendRuns(qkv, heads, shape.runs);
  }
  return AttendRectangle(qkv, shape.rows, shape.length, heads).view({shape.rows, shape.length, -1});
}

}  // namespace penstock::worker
