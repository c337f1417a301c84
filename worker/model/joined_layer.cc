#include "worker/model/joined_layer.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <utility>

#include "worker/model/joined_experts.h"
#include "worker/model/part_rows.h"

namespace penstock::worker {
namespace {

using Tensors = std::vector<at::Tensor*>;

void Append(NormStatistics& statistics, Tensors& tensors) {
  tensors.insert(tensors.end(), {&statistics.mean, &statistics.scale});
}

void Append(NormMemory& memory, Tensors& tensors) {
  tensors.insert(tensors.end(), {&memory.input, &memory.output});
  Append(memory.statistics, tensors);
}

void Append(OutputNormMemory& memory, Tensors& tensors) {
  tensors.push_back(&memory.input);
  Append(memory.statistics, tensors);
}

void Append(ProjectionMemory& memory, Tensors& tensors) {
  HeadNormsMemory& heads = memory.heads;
  JointHeadNormsMemory& joint = memory.joint_heads;
  tensors.insert(tensors.end(), {&memory.unclipped, &heads.query, &heads.key, &joint.query, &joint.key,
                                 &joint.query_scale, &joint.key_scale});
  Append(heads.query_statistics, tensors);
  Append(heads.key_statistics, tensors);
}

// Those that lie by tokens, but for the experts'.
Tensors TokenTensors(LayerMemory& memory) {
  SelfAttentionMemory& attention = memory.attention;
  FeedForwardBlockMemory& feed_forward = memory.feed_forward;
  Tensors tensors = {&memory.input,         &attention.query_key_value, &attention.attended,
                     &feed_forward.part.up, &feed_forward.part.gate,    &feed_forward.part.middle};
  Append(attention.norm, tensors);
  Append(attention.projection, tensors);
  Append(attention.output_norm, tensors);
  Append(feed_forward.norm, tensors);
  Append(feed_forward.output_norm, tensors);
  return tensors;
}

// A piece of a part, where its queries are in the whole.
struct PieceOfPart {
  int64_t query_begin = 0;
  at::Tensor log_sums;
};

std::vector<PieceOfPart> PiecesOf(const std::vector<LayerContext>& parts, std::vector<LayerMemory>& memory) {
  std::vector<PieceOfPart> pieces;
  for (size_t part = 0; part < parts.size(); ++part) {
    const AttentionShape& shape = *parts[part].attention;
    std::vector<AttentionMemory::Piece> kept = std::move(memory[part].attention.attention.pieces);
    kept.resize(shape.pieces.size());
    for (size_t i = 0; i < kept.size(); ++i)
      pieces.push_back({shape.queries_before + shape.pieces[i].query_begin, std::move(kept[i].log_sums)});
  }
  return pieces;
}

// Of a piece, from those of parts that lie in it one after the other. Undefined where one is not there: then
// it is made again.
at::Tensor JoinLogSums(const AttentionPiece& piece, const std::vector<at::Tensor>& log_sums) {
  if (log_sums.empty()) return {};
  for (const at::Tensor& of_part : log_sums) {
    if (!of_part.defined()) return {};
  }
  // In a piece of one row, or of all of them, its queries follow each other, else neighbours of one length.
  return at::cat(log_sums, piece.count == 1 ? 2 : 0);
}

// Pieces of parts are those of the whole, or where these have neighbours from several parts, runs of them.
AttentionMemory JoinAttention(const std::vector<LayerContext>& parts, const AttentionShape& whole,
                              std::vector<LayerMemory>& of_parts) {
  const std::vector<PieceOfPart> pieces = PiecesOf(parts, of_parts);
  AttentionMemory joined;
  joined.pieces.resize(whole.pieces.size());
  // One call for all rows of a part, and pieces of the whole, or the other way round: made again.
  for (const LayerContext& part : parts)
    if (part.attention->rows.queries.defined() != whole.rows.queries.defined()) return joined;
  size_t next = 0;
  for (size_t i = 0; i < whole.pieces.size(); ++i) {
    const AttentionPiece& piece = whole.pieces[i];
    std::vector<at::Tensor> log_sums;
    for (; next < pieces.size() &&
           pieces[next].query_begin < piece.query_begin + piece.count * piece.query_length;
         ++next)
      log_sums.push_back(pieces[next].log_sums);
    joined.pieces[i].log_sums = JoinLogSums(piece, log_sums);
  }
  return joined;
}

RoutedInParts RoutedIn(const std::vector<LayerContext>& parts, const LayerContext& whole) {
  RoutedInParts routed;
  if (!whole.attention->routed.has_value()) return routed;
  routed.samples = whole.attention->routed->samples();
  for (const LayerContext& part : parts) routed.first_samples.push_back(part.attention->routed->first_sample);
  return routed;
}

}  // namespace

LayerMemory JoinLayer(const LayerPart& part, const std::vector<LayerContext>& parts,
                      const LayerContext& whole, std::vector<LayerMemory> of_parts) {
  LayerMemory joined;
  joined.recompute = of_parts.front().recompute;
  std::vector<Tensors> tensors;
  for (LayerMemory& memory : of_parts) tensors.push_back(TokenTensors(memory));
  JoinTensors(tensors, TokenTensors(joined));
  if (joined.recompute == Recompute::kFull) return joined;
  joined.attention.attention = JoinAttention(parts, *whole.attention, of_parts);
  if (!part.feed_forward.experts.has_value()) return joined;
  std::vector<ExpertsMemory> experts;
  for (LayerMemory& memory : of_parts) experts.push_back(std::move(memory.feed_forward.experts));
  joined.feed_forward.experts =
      JoinExperts(part.feed_forward.experts->per_token, RoutedIn(parts, whole), std::move(experts));
  return joined;
}

}  // namespace penstock::worker
