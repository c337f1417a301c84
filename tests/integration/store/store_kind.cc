#include "tests/integration/store/store_kind.h"

#include "planner/service/store/memory_event_store.h"

namespace penstock {
namespace {

class MemoryPlace final : public StorePlace {
 public:
  absl::StatusOr<std::unique_ptr<EventStore>> Open() override { return std::make_unique<MemoryEventStore>(); }
};

template <typename Place>
std::unique_ptr<StorePlace> Make() {
  return std::make_unique<Place>();
}

}  // namespace

std::vector<StoreKind> AllStores() {
  return {{.name = "Memory", .durable = false, .make = Make<MemoryPlace>}};
}

}  // namespace penstock
