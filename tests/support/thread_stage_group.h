// A stage group whose ranks are threads of one process, with every kind of exchange between them.
//
//   RunStageGroup({.contexts = 2, .tensors = 2}, [](ThreadStageGroup& group) { ... a stage of its own ... });
//
// Who waits for longer than the group's patience fails, and with it all others: nothing hangs where ranks do
// not make the same calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/model/stage_group.h"

namespace penstock::worker {

// Where the ranks that exchange with each other meet, such as the tensor ranks of a context rank.
class ThreadMeeting;

class ThreadStageGroup : public StageGroup {
 public:
  ThreadStageGroup(const GroupPlace& place, std::shared_ptr<ThreadMeeting> tensors,
                   std::shared_ptr<ThreadMeeting> contexts, std::shared_ptr<ThreadMeeting> experts);

  GroupPlace place() const override { return place_; }
  at::Tensor GatherRows(const at::Tensor& own, const ListedRows& rows) override;
  at::Tensor SumRows(const at::Tensor& partial, const ListedRows& rows) override;
  void SumOverTensorRanks(at::Tensor& values) override;
  void MaxOverTensorRanks(at::Tensor& values) override;
  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                          const std::vector<int64_t>& received) override;
  // Has the rows when it returns.
  std::unique_ptr<PendingRows> StartExpertRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                               const std::vector<int64_t>& received) override;
  at::Tensor ExchangeExpertCounts(const at::Tensor& counts) override;
  absl::Status status() const override { return status_; }

  // How often each was called, and how many elements it gave: all rows of a gather, the sent rows of an
  // exchange.
  struct Counts {
    int64_t gathers = 0;
    int64_t row_sums = 0;
    int64_t sums = 0;
    int64_t maxima = 0;
    int64_t exchanges = 0;
    int64_t gathered_elements = 0;
    int64_t row_summed_elements = 0;
  };
  const Counts& counts() const { return counts_; }
  void ResetCounts() { counts_ = {}; }

 private:
  // What all of a meeting came with, in their order; nothing, once there was an error.
  std::vector<at::Tensor> Meet(ThreadMeeting& meeting, int position, const std::string& call,
                               const at::Tensor& tensor);
  // What the ranks of a meeting send to this one, who is at `position` there.
  at::Tensor Exchange(ThreadMeeting& meeting, int position, const std::string& call, const at::Tensor& rows,
                      const std::vector<int64_t>& sent, const std::vector<int64_t>& received);
  // In the order of the ranks, in float32 or wider.
  at::Tensor Sum(const std::vector<at::Tensor>& of_ranks) const;

  const GroupPlace place_;
  const std::shared_ptr<ThreadMeeting> tensors_;
  const std::shared_ptr<ThreadMeeting> contexts_;
  const std::shared_ptr<ThreadMeeting> experts_;
  absl::Status status_;
  Counts counts_;
};

// `place` says how many ranks there are. Runs `run` for each on a thread of its own, and joins them.
void RunStageGroup(const GroupPlace& place, const std::function<void(ThreadStageGroup&)>& run,
                   std::chrono::seconds patience = std::chrono::seconds(60));

}  // namespace penstock::worker
