#include "worker/optimizer/parameter_slice.h"

#include <algorithm>

namespace penstock::worker {
namespace {

bool Counts(const OwnBlock& own, int tensor_rank) { return own.first_holder == tensor_rank; }

// Adds what another tensor rank counts of a part that begins at `offset`.
void AppendOthers(const ParameterPart& part, int64_t offset, int tensor_rank, std::vector<FlatSpan>& others) {
  for (const OwnBlock& own : part.blocks) {
    const int64_t end = offset + own.block.elements();
    if (!Counts(own, tensor_rank)) others.push_back({offset, end});
    offset = end;
  }
}

std::vector<FlatSpan> RestOf(const FlatSpan& span, std::vector<FlatSpan> others) {
  std::ranges::sort(others, {}, &FlatSpan::begin);
  std::vector<FlatSpan> rest;
  int64_t begin = span.begin;
  for (const FlatSpan& other : others) {
    const int64_t end = std::min(other.begin, span.end);
    if (begin < end) rest.push_back({begin, end});
    begin = std::max(begin, other.end);
  }
  if (begin < span.end || others.empty()) rest.push_back({begin, span.end});
  return rest;
}

}  // namespace

TensorSlice SliceOf(const NamedParameter& parameter, int tensor_rank) {
  TensorSlice slice = {.name = parameter.name, .shape = parameter.part.whole_shape, .blocks = {}};
  for (const OwnBlock& own : parameter.part.blocks) {
    slice.blocks.push_back({.block = own.block, .copy = !Counts(own, tensor_rank)});
  }
  return slice;
}

std::vector<FlatSpan> CountedSpans(const ParameterPart& part, const FlatSpan& span, int tensor_rank) {
  std::vector<FlatSpan> others;
  AppendOthers(part, 0, tensor_rank, others);
  return RestOf(span, std::move(others));
}

std::vector<FlatSpan> CountedSpans(const FlatParameters& parameters, const FlatSpan& span, int tensor_rank) {
  std::vector<FlatSpan> others;
  for (const NamedParameter& parameter : parameters.parameters)
    AppendOthers(parameter.part, parameter.offset, tensor_rank, others);
  return RestOf(span, std::move(others));
}

}  // namespace penstock::worker
