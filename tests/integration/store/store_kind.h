// The stores that the contract test runs on.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/service/store/event_store.h"

namespace penstock {

// A place for one store that nobody else uses, and the means to open it. Opening it twice at a time is the
// test's affair.
class StorePlace {
 public:
  virtual ~StorePlace() = default;
  virtual absl::StatusOr<std::unique_ptr<EventStore>> Open() = 0;
};

struct StoreKind {
  std::string name;
  // What is committed is there when the place is opened again.
  bool durable = true;
  // Why it cannot be tested on this machine.
  std::optional<std::string> (*skip)() = [] { return std::optional<std::string>(); };
  std::unique_ptr<StorePlace> (*make)() = nullptr;
};

// How GoogleTest names it.
inline void PrintTo(const StoreKind& kind, std::ostream* out) { *out << kind.name; }

std::vector<StoreKind> AllStores();

}  // namespace penstock
