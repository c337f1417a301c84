// Which rows of tables over the vocabulary a tensor rank has.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "worker/comm/shard.h"
#include "worker/model/stage_group.h"

namespace penstock::worker {

struct VocabularyPart {
  StageGroup* group = &SoleRank();
  // Of the whole vocabulary.
  int64_t tokens = 0;
  Shard own;

  bool divided() const { return group->place().tensors > 1; }
  // int64 like `ids`: the row of each token here; of those of other ranks any row, spread over all.
  at::Tensor RowsOf(const at::Tensor& ids) const;
  // bool: whether another rank has the token.
  at::Tensor IsElsewhere(const at::Tensor& ids) const;
};

VocabularyPart MakeVocabularyPart(int64_t tokens, StageGroup& group);

}  // namespace penstock::worker
