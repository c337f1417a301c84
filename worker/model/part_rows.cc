#include "worker/model/part_rows.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace penstock::worker {
namespace {

std::vector<at::Tensor> Cut(const PartRows& parts, at::Tensor rows,
                            const std::function<int64_t(const TokenRows&)>& size) {
  if (parts.size() == 1) return {std::move(rows)};
  std::vector<at::Tensor> of_parts;
  int64_t begin = 0;
  for (const TokenRows& part : parts) {
    of_parts.push_back(rows.narrow(0, begin, size(part)));
    begin += size(part);
  }
  return of_parts;
}

}  // namespace

std::vector<at::Tensor> OwnRowsOfParts(const PartRows& parts, at::Tensor own) {
  return Cut(parts, std::move(own), [](const TokenRows& part) { return part.own().size(); });
}

std::vector<at::Tensor> AllRowsOfParts(const PartRows& parts, at::Tensor all) {
  return Cut(parts, std::move(all), [](const TokenRows& part) { return part.tokens.size(); });
}

std::vector<TokenSequence> TokensOfParts(const PartRows& parts, const TokenSequence& tokens) {
  std::vector<TokenSequence> of_parts;
  for (at::Tensor& ids : AllRowsOfParts(parts, tokens.ids))
    of_parts.push_back({.ids = std::move(ids), .positions = {}});
  if (!tokens.positions.defined()) return of_parts;
  std::vector<at::Tensor> positions = AllRowsOfParts(parts, tokens.positions);
  for (size_t part = 0; part < parts.size(); ++part) of_parts[part].positions = std::move(positions[part]);
  return of_parts;
}

at::Tensor JoinParts(const std::vector<at::Tensor>& of_parts) {
  return of_parts.size() == 1 ? of_parts.front() : at::cat(of_parts);
}

void JoinTensors(const std::vector<std::vector<at::Tensor*>>& of_parts,
                 const std::vector<at::Tensor*>& joined) {
  for (size_t i = 0; i < joined.size(); ++i) {
    std::vector<at::Tensor> rows;
    for (const std::vector<at::Tensor*>& part : of_parts) rows.push_back(std::exchange(*part[i], {}));
    if (rows.front().defined()) *joined[i] = JoinParts(rows);
  }
}

at::Tensor GatherParts(const PartRows& parts, const at::Tensor& own) {
  std::vector<at::Tensor> of_parts = OwnRowsOfParts(parts, own);
  for (size_t part = 0; part < parts.size(); ++part) of_parts[part] = parts[part].Gather(of_parts[part]);
  return JoinParts(of_parts);
}

at::Tensor SumParts(const PartRows& parts, const at::Tensor& partial) {
  std::vector<at::Tensor> of_parts = AllRowsOfParts(parts, partial);
  for (size_t part = 0; part < parts.size(); ++part) of_parts[part] = parts[part].Sum(of_parts[part]);
  return JoinParts(of_parts);
}

}  // namespace penstock::worker
