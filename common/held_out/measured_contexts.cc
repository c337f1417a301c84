#include "common/held_out/measured_contexts.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace penstock {
namespace {

constexpr absl::string_view kShares = "; layers also as shares of context ranks: ";

}  // namespace

std::string WithMeasuredContexts(absl::string_view comment, const std::vector<uint32_t>& contexts) {
  if (contexts.empty()) return std::string(comment);
  return absl::StrCat(comment, kShares, absl::StrJoin(contexts, ", "));
}

std::vector<uint32_t> MeasuredContextsOf(absl::string_view comment) {
  const size_t at = comment.find(kShares);
  if (at == absl::string_view::npos) return {};
  absl::string_view list = comment.substr(at + kShares.size());
  list = list.substr(0, list.find(';'));
  std::vector<uint32_t> contexts;
  for (const absl::string_view number : absl::StrSplit(list, ", ")) {
    uint32_t ranks = 0;
    if (!absl::SimpleAtoi(number, &ranks) || ranks < 2) return {};
    contexts.push_back(ranks);
  }
  return contexts;
}

}  // namespace penstock
