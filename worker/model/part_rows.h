// The tokens of a micro-batch whose parts (worker/program/parts.h) are gathered and summed apart, for what
// sees all of them at once. One of a micro-batch without parts.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/model/token_batch.h"
#include "worker/model/token_rows.h"

namespace penstock::worker {

using PartRows = std::vector<TokenRows>;

// Own tokens, [own tokens, ...], those of one part after the other, cut into these; and all of the context
// rank, [tokens, ...].
std::vector<at::Tensor> OwnRowsOfParts(const PartRows& parts, at::Tensor own);
std::vector<at::Tensor> AllRowsOfParts(const PartRows& parts, at::Tensor all);
std::vector<TokenSequence> TokensOfParts(const PartRows& parts, const TokenSequence& tokens);
// And together again.
at::Tensor JoinParts(const std::vector<at::Tensor>& of_parts);
// The same of several tensors, [part][tensor] to those of `joined`: undefined ones stay so. Uses those of the
// parts up, one after the other, so that no more than one is there twice.
void JoinTensors(const std::vector<std::vector<at::Tensor*>>& of_parts,
                 const std::vector<at::Tensor*>& joined);

// As TokenRows' own, part by part.
at::Tensor GatherParts(const PartRows& parts, const at::Tensor& own);
at::Tensor SumParts(const PartRows& parts, const at::Tensor& partial);

}  // namespace penstock::worker
