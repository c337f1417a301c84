// All-reduce over Gloo's connections beside Gloo's own: ranks as threads of one process, over loopback. One
// after the other in turns; medians of a call's time on rank 0 and of the ratios within a turn, as one JSON
// object a line.
//
//   build/release/bin/all_reduce_bench [TURNS]

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/median.h"
#include "worker/comm/communicator.h"
#include "worker/comm/gloo_group.h"

namespace penstock::worker {
namespace {

using bench::Median;

constexpr int kTurns = 9;
// Of a turn.
constexpr int64_t kBytesOfATurn = int64_t{64} << 20;
constexpr int64_t kMostCalls = 200;

double Microseconds(int64_t calls, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) call();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  return time.count() / static_cast<double>(calls);
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << value.status() << "\n";
  std::exit(1);
}

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << "\n";
  std::exit(1);
}

CommunicatorOptions OptionsOf(uint32_t rank, const std::vector<uint32_t>& group, const std::string& store,
                              uint64_t epoch) {
  CommunicatorOptions options;
  options.rank = rank;
  options.world_size = static_cast<uint32_t>(group.size());
  options.rendezvous_address = store;
  options.epoch = epoch;
  options.groups = {group};
  return options;
}

// Both ways to reduce, on one rank.
class Reducers {
 public:
  Reducers(uint32_t rank, const std::vector<uint32_t>& group, const std::string& store)
      : group_(group), own_(Must(MakeGlooCommunicator(OptionsOf(rank, group, store, 1)))) {
    const CommunicatorOptions options = OptionsOf(rank, group, store, 2);
    gloo_ = Must(JoinGlooGroup(options, Must(ConnectStore(options)), group));
  }

  void Own(const at::Tensor& tensor) { Must(Must(own_->StartAllReduceSum({tensor}, group_))->Wait()); }

  void Gloo(const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors = {tensor};
    gloo_->allreduce(tensors)->wait();
  }

 private:
  const std::vector<uint32_t> group_;
  std::unique_ptr<Communicator> own_;
  c10::intrusive_ptr<c10d::Backend> gloo_;
};

void Compare(Reducers& reducers, uint32_t rank, size_t ranks, int64_t bytes, int turns) {
  const at::Tensor tensor = at::zeros({bytes / 4}, at::kFloat);
  const int64_t calls = std::clamp<int64_t>(kBytesOfATurn / bytes, 1, kMostCalls);
  std::vector<double> own;
  std::vector<double> gloo;
  std::vector<double> ratios;
  for (int turn = -1; turn < turns; ++turn) {
    const double of_own = Microseconds(calls, [&] { reducers.Own(tensor); });
    const double of_gloo = Microseconds(calls, [&] { reducers.Gloo(tensor); });
    if (turn < 0) continue;  // warms up
    own.push_back(of_own);
    gloo.push_back(of_gloo);
    ratios.push_back(of_gloo / of_own);
  }
  if (rank != 0) return;
  const nlohmann::ordered_json row = {{"ranks", ranks},
                                      {"bytes", bytes},
                                      {"penstock_us", Median(own)},
                                      {"gloo_us", Median(gloo)},
                                      {"gloo_over_penstock", Median(ratios)},
                                      {"least", *std::ranges::min_element(ratios)},
                                      {"most", *std::ranges::max_element(ratios)}};
  std::cout << row.dump() << std::endl;
}

void RunRank(uint32_t rank, const std::vector<uint32_t>& group, const std::string& store, int turns) {
  Reducers reducers(rank, group, store);
  for (int64_t bytes = 256; bytes <= int64_t{16} << 20; bytes *= 16) {
    Compare(reducers, rank, group.size(), bytes, turns);
  }
}

void RunRanks(uint32_t ranks, int turns) {
  const std::unique_ptr<StoreServer> server = Must(StoreServer::Start("127.0.0.1"));
  const std::string store = absl::StrCat("127.0.0.1:", server->port());
  std::vector<uint32_t> group(ranks);
  std::iota(group.begin(), group.end(), 0);
  std::vector<std::thread> threads;
  for (const uint32_t rank : group) threads.emplace_back([&, rank] { RunRank(rank, group, store, turns); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace penstock::worker

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : penstock::worker::kTurns;
  at::set_num_threads(1);
  for (const uint32_t ranks : {2U, 4U}) penstock::worker::RunRanks(ranks, turns);
}
