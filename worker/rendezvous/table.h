// Names and values in which the ranks of an epoch say where they listen; who waits for a name is told when it
// is there. Knows no sockets, threads or clock: table_server.h serves it.
//
//   Table table;
//   for (const Table::Due& due : table.Apply(caller, request, now)) Send(due.caller, due.answer);
//   ... at table.next_expiry():
//   for (const Table::Due& due : table.Expire(now)) Send(due.caller, due.answer);
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/rendezvous/messages.h"

namespace penstock::worker {

// Not thread-safe.
class Table {
 public:
  // Has one request at a time.
  using Caller = uint64_t;

  struct Due {
    Caller caller = 0;
    TableAnswer answer = {};
  };

  // What is to be answered now: the caller, unless he waits, and those who have waited for what he has set.
  std::vector<Due> Apply(Caller caller, const TableRequest& request, absl::Time now);
  // Those who have waited for long enough.
  std::vector<Due> Expire(absl::Time now);
  // Infinite future: nobody waits.
  absl::Time next_expiry() const;
  // He is gone.
  void Forget(Caller caller) { waiting_.erase(caller); }

 private:
  struct Waiter {
    std::set<std::string> missing;
    absl::Time until;
  };

  TableAnswer Change(const TableRequest& request);
  std::set<std::string> Missing(const std::vector<std::string>& keys) const;
  // Answers those who miss nothing else.
  void Tell(const std::string& key, std::vector<Due>& due);

  std::map<std::string, std::string> values_;
  std::map<Caller, Waiter> waiting_;
};

}  // namespace penstock::worker
