// Context ranks of a stage group as threads of one process.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "worker/model/stage_group.h"

namespace penstock::worker {

// What context ranks, threads of this process, hand each other.
class Hall {
 public:
  explicit Hall(int ranks) : barrier_(ranks), rows_(static_cast<size_t>(ranks)), sent_(rows_.size()) {}

  at::Tensor Exchange(size_t rank, const at::Tensor& rows, const std::vector<int64_t>& sent,
                      const std::vector<int64_t>& received) {
    rows_[rank] = rows;
    sent_[rank] = sent;
    barrier_.arrive_and_wait();
    std::vector<at::Tensor> parts;
    for (size_t from = 0; from < rows_.size(); ++from) {
      int64_t begin = 0;
      for (size_t to = 0; to < rank; ++to) begin += sent_[from][to];
      EXPECT_EQ(sent_[from][rank], received[from]) << "from " << from << " to " << rank;
      parts.push_back(rows_[from].narrow(0, begin, received[from]));
    }
    at::Tensor result = at::cat(parts, 0);
    barrier_.arrive_and_wait();
    return result;
  }

 private:
  std::barrier<> barrier_;
  std::vector<at::Tensor> rows_;
  std::vector<std::vector<int64_t>> sent_;
};

class HallRank : public StageGroup {
 public:
  HallRank(Hall* hall, int context, int contexts) : hall_(*hall), place_{context, contexts, 0, 1} {}

  GroupPlace place() const override { return place_; }
  at::Tensor GatherRows(const at::Tensor& own, int64_t) override { return own; }
  at::Tensor SumRows(const at::Tensor& partial) override { return partial; }
  void SumOverTensorRanks(at::Tensor&) override {}
  void MaxOverTensorRanks(at::Tensor&) override {}
  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                          const std::vector<int64_t>& received) override {
    ++exchanges_;
    sent_bytes_ += static_cast<int64_t>(rows.nbytes());
    at::Tensor result = hall_.Exchange(static_cast<size_t>(place_.context), rows, sent, received);
    received_bytes_ += static_cast<int64_t>(result.nbytes());
    return result;
  }
  absl::Status status() const override { return absl::OkStatus(); }
  // So far.
  int exchanges() const { return exchanges_; }
  int64_t sent_bytes() const { return sent_bytes_; }
  int64_t received_bytes() const { return received_bytes_; }

 private:
  Hall& hall_;
  const GroupPlace place_;
  int exchanges_ = 0;
  int64_t sent_bytes_ = 0;
  int64_t received_bytes_ = 0;
};

// Runs `run` with each of them, on a thread of its own.
inline void RunContextRanks(int contexts, const std::function<void(HallRank&)>& run) {
  Hall hall(contexts);
  std::vector<std::thread> threads;
  for (int context = 0; context < contexts; ++context) {
    threads.emplace_back([&hall, &run, context, contexts] {
      HallRank group(&hall, context, contexts);
      run(group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace penstock::worker
