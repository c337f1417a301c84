#include "worker/rendezvous/table.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace penstock::worker {

std::vector<Table::Due> Table::Apply(Caller caller, const TableRequest& request, absl::Time now) {
  if (request.operation == TableOperation::kWait) {
    std::set<std::string> missing = Missing(request.keys);
    if (missing.empty()) return {{.caller = caller, .answer = {}}};
    waiting_[caller] = {.missing = std::move(missing), .until = now + absl::Milliseconds(request.number)};
    return {};
  }
  std::vector<Due> due = {{.caller = caller, .answer = Change(request)}};
  if (request.operation == TableOperation::kSet || request.operation == TableOperation::kAdd)
    Tell(request.keys.front(), due);
  return due;
}

TableAnswer Table::Change(const TableRequest& request) {
  const std::string key = request.keys.empty() ? "" : request.keys.front();
  const auto found = values_.find(key);
  const bool is_there = found != values_.end();
  switch (request.operation) {
    case TableOperation::kSet:
      values_[key] = request.value;
      return {};
    case TableOperation::kGet:
      return {.found = is_there, .value = is_there ? found->second : ""};
    case TableOperation::kAdd: {
      int64_t sum = 0;
      if (is_there && !absl::SimpleAtoi(found->second, &sum)) return {.found = false};
      // As unsigned numbers, which may overflow.
      sum = static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(request.number));
      values_[key] = absl::StrCat(sum);
      return {.number = sum};
    }
    case TableOperation::kDelete:
      values_.erase(key);
      return {.found = is_there};
    case TableOperation::kCheck:
      return {.found = Missing(request.keys).empty()};
    case TableOperation::kCount:
    case TableOperation::kWait:
      break;
  }
  return {.number = static_cast<int64_t>(values_.size())};
}

std::vector<Table::Due> Table::Expire(absl::Time now) {
  std::vector<Due> due;
  for (const auto& [caller, waiter] : waiting_) {
    if (waiter.until <= now) due.push_back({.caller = caller, .answer = {.found = false}});
  }
  for (const Due& expired : due) waiting_.erase(expired.caller);
  return due;
}

absl::Time Table::next_expiry() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [_, waiter] : waiting_) next = std::min(next, waiter.until);
  return next;
}

std::set<std::string> Table::Missing(const std::vector<std::string>& keys) const {
  std::set<std::string> missing;
  for (const std::string& key : keys) {
    if (!values_.contains(key)) missing.insert(key);
  }
  return missing;
}

void Table::Tell(const std::string& key, std::vector<Due>& due) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    at->second.missing.erase(key);
    if (!at->second.missing.empty()) {
      ++at;
      continue;
    }
    due.push_back({.caller = at->first, .answer = {}});
    at = waiting_.erase(at);
  }
}

}  // namespace penstock::worker
