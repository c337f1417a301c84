#include "worker/comm/table_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace penstock::worker {
namespace {

using StoredValue = std::vector<uint8_t>;

// For the table to answer what needs no waiting, as long as connecting may take but for these bounds: it has
// many to answer, and may be gone.
constexpr absl::Duration kShortestAnswerTimeout = absl::Seconds(5);
constexpr absl::Duration kLongestAnswerTimeout = absl::Seconds(30);

// Of those who would wait forever.
constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24);

[[noreturn]] void ThrowStoreError(absl::string_view message) {
  C10_THROW_ERROR(DistStoreError, std::string(message));
}

template <typename Value>
Value OrThrow(absl::StatusOr<Value> value) {
  if (!value.ok()) ThrowStoreError(value.status().message());
  return *std::move(value);
}

// What GuardedStore (guarded_store.h) asks for.
class TableStore : public c10d::Store {
 public:
  explicit TableStore(TableStoreOptions options)
      : c10d::Store(options.timeout),
        options_(std::move(options)),
        client_(OrThrow(
            TableClient::Connect(options_.address, options_.secret, absl::FromChrono(options_.timeout)))) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return OpenTableStore(options_); }

  using c10d::Store::set;
  void set(const std::string& key, const StoredValue& value) override {
    Ask({.operation = TableOperation::kSet, .keys = {key}, .value = std::string(value.begin(), value.end())});
  }

  // Waits for it. Process groups mostly ask for what is there.
  StoredValue get(const std::string& key) override {
    TableAnswer answer = Find(key);
    if (!answer.found) {
      wait({key});
      answer = Find(key);
    }
    if (!answer.found) ThrowStoreError(absl::StrCat("'", key, "' has been deleted meanwhile"));
    return {answer.value.begin(), answer.value.end()};
  }

  int64_t add(const std::string& key, int64_t value) override {
    const TableAnswer answer = Ask({.operation = TableOperation::kAdd, .keys = {key}, .number = value});
    if (!answer.found) ThrowStoreError(absl::StrCat("the value of '", key, "' is no number"));
    return answer.number;
  }

  bool deleteKey(const std::string& key) override {
    return Ask({.operation = TableOperation::kDelete, .keys = {key}}).found;
  }
  bool check(const std::vector<std::string>& keys) override {
    return Ask({.operation = TableOperation::kCheck, .keys = keys}).found;
  }
  int64_t getNumKeys() override { return Ask({.operation = TableOperation::kCount}).number; }

  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    const auto limit = timeout == kNoTimeout ? kLongestWait : timeout;
    const TableAnswer answer =
        Ask({.operation = TableOperation::kWait, .keys = keys, .number = limit.count()});
    if (!answer.found) {
      // Names are sealed, and there may be many: who waits knows whom for.
      ThrowStoreError(
          absl::StrCat("not all of ", keys.size(), " values are there after ", timeout.count(), " ms"));
    }
  }

 private:
  TableAnswer Find(const std::string& key) { return Ask({.operation = TableOperation::kGet, .keys = {key}}); }
  TableAnswer Ask(const TableRequest& request) {
    return OrThrow(client_->Call(request, std::clamp(absl::FromChrono(options_.timeout),
                                                     kShortestAnswerTimeout, kLongestAnswerTimeout)));
  }

  const TableStoreOptions options_;
  const std::unique_ptr<TableClient> client_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> OpenTableStore(const TableStoreOptions& options) {
  return c10::make_intrusive<TableStore>(options);
}

}  // namespace penstock::worker
