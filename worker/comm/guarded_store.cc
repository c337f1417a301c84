#include "worker/comm/guarded_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

using StoredValue = std::vector<uint8_t>;

absl::string_view View(const StoredValue& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

StoredValue ToStored(const std::string& text) { return {text.begin(), text.end()}; }

// c10d's stores say by exceptions what went wrong; those who call them are behind worker/torch/boundary.h.
[[noreturn]] void Throw(const std::string& message) { C10_THROW_ERROR(DistStoreError, message); }

// What c10d's groups call. The rest of c10d::Store (compareSet, queues, append) cannot be sealed by those who
// write and is left to the base class, which refuses it.
class GuardedStore : public c10d::Store {
 public:
  GuardedStore(c10::intrusive_ptr<c10d::Store> store, const SealedValues& sealed)
      : store_(std::move(store)), sealed_(sealed) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return GuardStore(store_->clone(), sealed_); }

  using c10d::Store::set;
  void set(const std::string& key, const StoredValue& value) override {
    const absl::StatusOr<std::string> sealed = sealed_.Seal(key, View(value));
    if (!sealed.ok()) Throw(std::string(sealed.status().message()));
    store_->set(sealed_.HiddenName(key), ToStored(*sealed));
  }

  StoredValue get(const std::string& key) override {
    const StoredValue found = store_->get(sealed_.HiddenName(key));
    const absl::StatusOr<std::string> value = sealed_.Open(key, View(found));
    if (value.ok()) return ToStored(*value);
    Throw(absl::StrCat(
        "the value of '", key, "' was not made by a worker of this epoch: somebody ",
        "changes what is on the way to the rendezvous. Keep the workers' network (--host) to themselves"));
  }

  // The server makes the sum, so it cannot be sealed: a stranger who finds the key may change it. Who counts
  // with it learns how many have come, and nothing that is an address.
  int64_t add(const std::string& key, int64_t value) override {
    return store_->add(sealed_.HiddenName(key), value);
  }

  bool deleteKey(const std::string& key) override { return store_->deleteKey(sealed_.HiddenName(key)); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(Hidden(keys)); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { store_->wait(Hidden(keys)); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    store_->wait(Hidden(keys), timeout);
  }
  const std::chrono::milliseconds& getTimeout() const noexcept override { return store_->getTimeout(); }
  void setTimeout(const std::chrono::milliseconds& timeout) override { store_->setTimeout(timeout); }
  bool hasExtendedApi() const override { return false; }

 private:
  std::vector<std::string> Hidden(const std::vector<std::string>& keys) const {
    std::vector<std::string> hidden;
    hidden.reserve(keys.size());
    std::ranges::transform(keys, std::back_inserter(hidden),
                           [&](const std::string& key) { return sealed_.HiddenName(key); });
    return hidden;
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const SealedValues sealed_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> GuardStore(c10::intrusive_ptr<c10d::Store> store,
                                           const SealedValues& sealed) {
  return c10::make_intrusive<GuardedStore>(std::move(store), sealed);
}

}  // namespace penstock::worker
