#include "worker/model/vocabulary_part.h"

#include <ATen/ATen.h>

namespace penstock::worker {

at::Tensor VocabularyPart::RowsOf(const at::Tensor& ids) const {
  return (ids - own.begin).remainder_(own.size());
}

at::Tensor VocabularyPart::IsElsewhere(const at::Tensor& ids) const {
  return at::logical_or(ids < own.begin, ids >= own.end);
}

VocabularyPart MakeVocabularyPart(int64_t tokens, StageGroup& group) {
  const GroupPlace place = group.place();
  return {&group, tokens, ShardOf(tokens, place.tensor, place.tensors)};
}

}  // namespace penstock::worker
