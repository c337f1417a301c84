#include "tests/support/thread_stage_group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/comm/shard.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {

class ThreadMeeting {
 public:
  ThreadMeeting(int ranks, std::chrono::seconds patience)
      : ranks_(ranks), patience_(patience), now_(static_cast<size_t>(ranks)) {}

  // Waits for all, who must make the same call.
  absl::StatusOr<std::vector<at::Tensor>> Meet(int position, const std::string& call,
                                               const at::Tensor& tensor) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!error_.ok()) return error_;
    if (arrived_ == 0) call_ = call;
    if (call != call_) Fail(absl::InternalError(absl::StrCat("one rank calls ", call, ", another ", call_)));
    now_[static_cast<size_t>(position)] = tensor;
    const int64_t round = round_;
    if (++arrived_ == ranks_) {
      last_ = std::exchange(now_, std::vector<at::Tensor>(static_cast<size_t>(ranks_)));
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    const auto over = [&] { return round_ > round || !error_.ok(); };
    if (!changed_.wait_for(lock, patience_, over))
      Fail(absl::UnavailableError(absl::StrCat("nobody else came to ", call)));
    if (!error_.ok()) return error_;
    // Not overwritten before all have it: the next round ends when all are in it.
    return last_;
  }

 private:
  void Fail(absl::Status error) {
    if (error_.ok()) error_ = std::move(error);
    changed_.notify_all();
  }

  const int ranks_;
  const std::chrono::seconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> now_;
  std::vector<at::Tensor> last_;
  std::string call_;
  int arrived_ = 0;
  int64_t round_ = 0;
  absl::Status error_;
};

namespace {

at::Tensor ZeroRows(const at::Tensor& like, int64_t rows) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[0] = rows;
  return at::zeros(sizes, like.options());
}

int64_t Total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

ThreadStageGroup::ThreadStageGroup(const GroupPlace& place, std::shared_ptr<ThreadMeeting> tensors,
                                   std::shared_ptr<ThreadMeeting> contexts,
                                   std::shared_ptr<ThreadMeeting> experts)
    : place_(place),
      tensors_(std::move(tensors)),
      contexts_(std::move(contexts)),
      experts_(std::move(experts)) {}

std::vector<at::Tensor> ThreadStageGroup::Meet(ThreadMeeting& meeting, int position, const std::string& call,
                                               const at::Tensor& tensor) {
  if (!status_.ok()) return {};
  // Others read it while this rank goes on, and may write to it.
  auto all = meeting.Meet(position, call, tensor.clone());
  status_ = all.status();
  return all.ok() ? *std::move(all) : std::vector<at::Tensor>();
}

at::Tensor ThreadStageGroup::Sum(const std::vector<at::Tensor>& of_ranks) const {
  const at::ScalarType type = of_ranks.front().scalar_type();
  const at::ScalarType wide = at::isFloatingType(type) ? AccumulationType(type) : type;
  at::Tensor sum = of_ranks.front().to(wide, /*non_blocking=*/false, /*copy=*/true);
  for (size_t i = 1; i < of_ranks.size(); ++i) sum.add_(of_ranks[i]);
  return sum.to(type);
}

at::Tensor ThreadStageGroup::GatherRows(const at::Tensor& own, const ListedRows& rows) {
  if (place_.tensors == 1) return own;
  const at::NoGradGuard no_grad;
  ++counts_.gathers;
  std::string call = absl::StrCat("GatherRows of ", rows.size(), " rows");
  if (own.size(0) != ShardOf(rows, place_.tensor, place_.tensors).size())
    call += absl::StrCat(" with ", own.size(0), " of rank ", place_.tensor);
  const std::vector<at::Tensor> all = Meet(*tensors_, place_.tensor, call, own);
  at::Tensor result = all.empty() ? ZeroRows(own, rows.size()) : at::cat(all, 0);
  counts_.gathered_elements += result.numel();
  return result;
}

at::Tensor ThreadStageGroup::SumRows(const at::Tensor& partial, const ListedRows& rows) {
  if (place_.tensors == 1) return partial;
  const at::NoGradGuard no_grad;
  ++counts_.row_sums;
  counts_.row_summed_elements += partial.numel();
  const Shard own = ShardOf(rows, place_.tensor, place_.tensors);
  std::vector<at::Tensor> all = Meet(
      *tensors_, place_.tensor, absl::StrCat("SumRows of ", absl::StrJoin(partial.sizes(), "x")), partial);
  if (all.empty()) return ZeroRows(partial, own.size());
  for (at::Tensor& of_rank : all) of_rank = of_rank.narrow(0, own.begin, own.size());
  return Sum(all);
}

void ThreadStageGroup::SumOverTensorRanks(at::Tensor& values) {
  if (place_.tensors == 1) return;
  const at::NoGradGuard no_grad;
  ++counts_.sums;
  const std::vector<at::Tensor> all =
      Meet(*tensors_, place_.tensor, absl::StrCat("SumOverTensorRanks of ", values.numel()), values);
  values.copy_(all.empty() ? at::zeros_like(values) : Sum(all));
}

void ThreadStageGroup::MaxOverTensorRanks(at::Tensor& values) {
  if (place_.tensors == 1) return;
  const at::NoGradGuard no_grad;
  ++counts_.maxima;
  const std::vector<at::Tensor> all =
      Meet(*tensors_, place_.tensor, absl::StrCat("MaxOverTensorRanks of ", values.numel()), values);
  values.copy_(all.empty() ? at::zeros_like(values) : at::stack(all, 0).amax(0));
}

at::Tensor ThreadStageGroup::Exchange(ThreadMeeting& meeting, int position, const std::string& call,
                                      const at::Tensor& rows, const std::vector<int64_t>& sent,
                                      const std::vector<int64_t>& received) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> all = Meet(meeting, position, call, rows);
  const std::vector<at::Tensor> numbers =
      Meet(meeting, position, "the numbers of " + call, at::tensor(sent, at::kLong));
  if (numbers.empty()) return ZeroRows(rows, Total(received));
  std::vector<at::Tensor> parts;
  for (size_t from = 0; from < all.size(); ++from) {
    const auto* const counts = numbers[from].const_data_ptr<int64_t>();
    const int64_t begin = std::accumulate(counts, counts + position, int64_t{0});
    if (counts[position] != received[from]) {
      status_ = absl::InternalError(absl::StrCat(call, ": rank ", from, " sends ", counts[position],
                                                 " rows, expected ", received[from]));
      return ZeroRows(rows, Total(received));
    }
    parts.push_back(all[from].narrow(0, begin, received[from]));
  }
  return at::cat(parts, 0);
}

at::Tensor ThreadStageGroup::ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                          const std::vector<int64_t>& received) {
  if (place_.contexts == 1) return rows;
  ++counts_.exchanges;
  return Exchange(*contexts_, place_.context, "ExchangeRows", rows, sent, received);
}

std::unique_ptr<PendingRows> ThreadStageGroup::StartExpertRows(const at::Tensor& rows,
                                                               const std::vector<int64_t>& sent,
                                                               const std::vector<int64_t>& received) {
  if (place_.experts == 1) return std::make_unique<ArrivedRows>(rows);
  return std::make_unique<ArrivedRows>(
      Exchange(*experts_, place_.expert(), "StartExpertRows", rows, sent, received));
}

at::Tensor ThreadStageGroup::ExchangeExpertCounts(const at::Tensor& counts) {
  if (place_.experts == 1) return counts;
  const std::vector<int64_t> one_each(static_cast<size_t>(place_.experts), 1);
  return Exchange(*experts_, place_.expert(), "ExchangeExpertCounts", counts.view({place_.experts, -1}),
                  one_each, one_each)
      .view({-1});
}

void RunStageGroup(const GroupPlace& place, const std::function<void(ThreadStageGroup&)>& run,
                   std::chrono::seconds patience) {
  std::vector<std::shared_ptr<ThreadMeeting>> of_context;
  std::vector<std::shared_ptr<ThreadMeeting>> of_tensor;
  for (int c = 0; c < place.contexts; ++c)
    of_context.push_back(std::make_shared<ThreadMeeting>(place.tensors, patience));
  for (int t = 0; t < place.tensors; ++t)
    of_tensor.push_back(std::make_shared<ThreadMeeting>(place.contexts, patience));
  std::vector<std::shared_ptr<ThreadMeeting>> of_experts;
  for (int i = 0; i < place.expert_groups(); ++i)
    of_experts.push_back(std::make_shared<ThreadMeeting>(place.experts, patience));
  std::vector<std::thread> threads;
  for (int c = 0; c < place.contexts; ++c) {
    for (int t = 0; t < place.tensors; ++t) {
      threads.emplace_back([&, c, t] {
        const GroupPlace own = {c, place.contexts, t, place.tensors, place.experts};
        ThreadStageGroup group(own, of_context[static_cast<size_t>(c)], of_tensor[static_cast<size_t>(t)],
                               of_experts[static_cast<size_t>(own.expert_group())]);
        run(group);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace penstock::worker
