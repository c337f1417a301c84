// What a commit costs in each store: transactions of 1, 16 and 256 events of 200 bytes, one after the other,
// as the engine's writer makes them. Rows carry p50 and p99 of a commit beside commits a second.
//
//   build/release/bin/store_bench --benchmark_format=json
//
// Files lie in TMPDIR (/tmp): what is measured is its disk, and on a tmpfs none. PENSTOCK_BENCH_POSTGRES
// names a database of a server; without it one is started here, where PostgreSQL is installed.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "planner/service/store/open/open_event_store.h"
#include "tests/bench/latencies.h"
#include "tests/support/postgres_server.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

constexpr size_t kEventBytes = 200;
// A snapshot takes the place of events after so many of them, as in the engine.
constexpr uint64_t kEventsPerSnapshot = 4096;

std::string PostgresUrl() {
  if (const char* url = std::getenv("PENSTOCK_BENCH_POSTGRES"); url != nullptr) return url;
  if (PostgresServer::WhyNot().has_value()) return "";
  static const auto server = PostgresServer::Start(/*flushes=*/true);
  return server.ok() ? (*server)->Url((*server)->NewDatabase()) : "";
}

void Commit(benchmark::State& state, const std::string& url) {
  if (url.empty()) return state.SkipWithError("PostgreSQL is not installed");
  const auto store = OpenEventStore(url, {});
  if (!store.ok()) return state.SkipWithError(store.status().ToString().c_str());
  const auto events = static_cast<uint64_t>(state.range(0));
  JobChange change = {.job = *(*store)->LargestJob() + 1,
                      .job_id = "bench",
                      .first_sequence = 1,
                      .events = std::vector<std::string>(events, std::string(kEventBytes, 'e'))};
  bench::Latencies latencies;
  for (auto _ : state) {
    const absl::Time start = absl::Now();
    const absl::Status status = (*store)->Commit({change});
    latencies.Add(absl::Now() - start);
    if (!status.ok()) return state.SkipWithError(status.ToString().c_str());
    change.first_sequence += events;
    change.snapshot.reset();
    if (change.first_sequence % kEventsPerSnapshot < events) {
      change.snapshot = Snapshot{.sequence = change.first_sequence - 1, .bytes = std::string(10'000, 's')};
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(events));
  state.counters["commits_per_second"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.counters["p50_us"] = absl::ToDoubleMicroseconds(latencies.Quantile(0.5));
  state.counters["p99_us"] = absl::ToDoubleMicroseconds(latencies.Quantile(0.99));
}

void Memory(benchmark::State& state) { Commit(state, "memory"); }
void Sqlite(benchmark::State& state) {
  const TemporaryFolder folder;
  Commit(state, "sqlite:" + folder.Path("planner.db"));
  state.counters["file_bytes"] = static_cast<double>(std::filesystem::file_size(folder.Path("planner.db")));
}
void Postgres(benchmark::State& state) { Commit(state, PostgresUrl()); }

// Opening a store and reading all its events, as after a restart: what SQLite checks of its file is part of
// it.
void Recover(benchmark::State& state, const std::string& url) {
  if (url.empty()) return state.SkipWithError("PostgreSQL is not installed");
  constexpr uint64_t kTogether = 1000;
  auto store = OpenEventStore(url, {});
  if (!store.ok()) return state.SkipWithError(store.status().ToString().c_str());
  for (uint64_t first = 1; first <= static_cast<uint64_t>(state.range(0)); first += kTogether) {
    const JobChange change = {.job = 1,
                              .job_id = "bench",
                              .first_sequence = first,
                              .events = std::vector<std::string>(kTogether, std::string(kEventBytes, 'e'))};
    if (!(*store)->Commit({change}).ok()) return state.SkipWithError("a commit failed");
  }
  for (auto _ : state) {
    store->reset();
    store = OpenEventStore(url, {});
    if (!store.ok() || !(*store)->Load().ok()) return state.SkipWithError("the store cannot be read");
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void RecoverSqlite(benchmark::State& state) {
  const TemporaryFolder folder;
  Recover(state, "sqlite:" + folder.Path("planner.db"));
  state.counters["file_bytes"] = static_cast<double>(std::filesystem::file_size(folder.Path("planner.db")));
}
void RecoverPostgres(benchmark::State& state) { Recover(state, PostgresUrl()); }

BENCHMARK(Memory)->ArgName("events")->Arg(1)->Arg(16)->Arg(256)->UseRealTime();
BENCHMARK(Sqlite)->ArgName("events")->Arg(1)->Arg(16)->Arg(256)->UseRealTime();
BENCHMARK(Postgres)->ArgName("events")->Arg(1)->Arg(16)->Arg(256)->UseRealTime();
BENCHMARK(RecoverSqlite)
    ->ArgName("events")
    ->Arg(10'000)
    ->Arg(100'000)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(RecoverPostgres)
    ->ArgName("events")
    ->Arg(10'000)
    ->Arg(100'000)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace penstock
