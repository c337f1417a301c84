#include "worker/comm/pass_exchange.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/comm/direct_sum.h"
#include "worker/comm/shard.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

std::vector<int64_t> ShapeWith(const at::Tensor& rows, int64_t count) {
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = count;
  return shape;
}

at::Tensor RowsOf(const at::Tensor& tensor, const ListedRows& rows, int rank, int ranks) {
  const Shard shard = ShardOf(rows, rank, ranks);
  return tensor.narrow(0, shard.begin, shard.size());
}

// Stretches of so many rows, one after the other.
std::vector<at::Tensor> Split(const at::Tensor& rows, const std::vector<int64_t>& counts) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    parts.push_back(rows.narrow(0, begin, count));
    begin += count;
  }
  return parts;
}

at::Tensor Sum(const std::vector<at::Tensor>& of_ranks) {
  const at::ScalarType type = of_ranks.front().scalar_type();
  const at::ScalarType wide = at::isFloatingType(type) ? AccumulationType(type) : type;
  at::Tensor sum = of_ranks.front().to(wide) + of_ranks[1].to(wide);
  for (size_t i = 2; i < of_ranks.size(); ++i) sum.add_(of_ranks[i]);
  return sum.to(type);
}

at::Tensor Largest(const std::vector<at::Tensor>& of_ranks) {
  at::Tensor largest = at::maximum(of_ranks.front(), of_ranks[1]);
  for (size_t i = 2; i < of_ranks.size(); ++i) largest = at::maximum(largest, of_ranks[i]);
  return largest;
}

absl::Status CheckRows(const char* what, int64_t rows, int64_t expected) {
  if (rows == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " has ", rows, " rows, expected ", expected));
}

}  // namespace

absl::Status ExchangeGroup::Exchange(const std::vector<at::Tensor>& sent,
                                     const std::vector<at::Tensor>& received) const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<PendingTransfer> exchange, start(sent, received));
  return exchange->Wait();
}

bool PassExchange::Attempt(absl::string_view what, const std::function<absl::Status()>& body) {
  if (!status_.ok()) return false;
  absl::Status outcome;
  status_ = RunTorch(what, [&] {
    const at::NoGradGuard no_gradients;
    outcome = body();
  });
  if (status_.ok()) status_ = AnnotateError(outcome, what);
  return status_.ok();
}

template <typename Call>
auto PassExchange::Waiting(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  auto result = call();
  waited_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  return result;
}

absl::Status PassExchange::ExchangeOverTensorRanks(const std::vector<at::Tensor>& sent,
                                                   const std::vector<at::Tensor>& received) {
  return Waiting([&] { return tensors_.Exchange(sent, received); });
}

absl::Status PassExchange::GatherShards(const at::Tensor& own, const at::Tensor& all,
                                        const ListedRows& rows) {
  const std::vector<at::Tensor> sent(static_cast<size_t>(tensors_.size), own);
  std::vector<at::Tensor> received;
  for (int rank = 0; rank < tensors_.size; ++rank) received.push_back(RowsOf(all, rows, rank, tensors_.size));
  return ExchangeOverTensorRanks(sent, received);
}

absl::Status PassExchange::MergeShards(const at::Tensor& partial, const ListedRows& rows, Merge merge,
                                       at::Tensor& result) {
  const int64_t own_rows = ShardOf(rows, tensors_.position, tensors_.size).size();
  std::vector<at::Tensor> sent;
  std::vector<at::Tensor> of_ranks;
  for (int rank = 0; rank < tensors_.size; ++rank) {
    sent.push_back(RowsOf(partial, rows, rank, tensors_.size));
    of_ranks.push_back(
        rank == tensors_.position ? sent.back() : at::empty(ShapeWith(partial, own_rows), partial.options()));
  }
  PENSTOCK_RETURN_IF_ERROR(ExchangeOverTensorRanks(sent, of_ranks));
  result = merge(of_ranks);
  return absl::OkStatus();
}

at::Tensor PassExchange::GatherRows(const at::Tensor& own, const ListedRows& rows) {
  if (tensors_.size == 1) return own;
  at::Tensor all;
  const bool gathered = Attempt("gathering from the tensor ranks", [&]() -> absl::Status {
    const Shard shard = ShardOf(rows, tensors_.position, tensors_.size);
    PENSTOCK_RETURN_IF_ERROR(CheckRows("own part", own.size(0), shard.size()));
    all = at::empty(ShapeWith(own, rows.size()), own.options());
    const at::Tensor part = all.narrow(0, shard.begin, shard.size());
    part.copy_(own);
    return GatherShards(part, all, rows);
  });
  return gathered ? all : at::zeros(ShapeWith(own, rows.size()), own.options());
}

at::Tensor PassExchange::SumRows(const at::Tensor& partial, const ListedRows& rows) {
  if (tensors_.size == 1) return partial;
  at::Tensor sum;
  const bool summed = Attempt("summing over the tensor ranks", [&]() -> absl::Status {
    PENSTOCK_RETURN_IF_ERROR(CheckRows("what is summed", partial.size(0), rows.size()));
    return MergeShards(partial.contiguous(), rows, Sum, sum);
  });
  if (summed) return sum;
  const int64_t own_rows = ShardOf(rows, tensors_.position, tensors_.size).size();
  return at::zeros(ShapeWith(partial, own_rows), partial.options());
}

// Small ones go to everybody at once, in one exchange; the bits are those of two.
absl::Status PassExchange::MergeFlat(Merge merge, const at::Tensor& flat) {
  if (!SumsDirectly(flat, static_cast<size_t>(tensors_.size))) {
    at::Tensor merged;
    const ListedRows values = flat.size(0);
    PENSTOCK_RETURN_IF_ERROR(MergeShards(flat, values, merge, merged));
    const at::Tensor own = RowsOf(flat, values, tensors_.position, tensors_.size);
    own.copy_(merged);
    return GatherShards(own, flat, values);
  }
  const std::vector<at::Tensor> sent(static_cast<size_t>(tensors_.size), flat);
  std::vector<at::Tensor> of_ranks;
  for (int rank = 0; rank < tensors_.size; ++rank) {
    of_ranks.push_back(rank == tensors_.position ? flat : at::empty_like(flat));
  }
  PENSTOCK_RETURN_IF_ERROR(ExchangeOverTensorRanks(sent, of_ranks));
  flat.copy_(merge(of_ranks));
  return absl::OkStatus();
}

void PassExchange::MergeOverTensorRanks(absl::string_view what, Merge merge, at::Tensor& values) {
  if (tensors_.size == 1) return;
  const bool merged = Attempt(what, [&] { return MergeFlat(merge, values.view({-1})); });
  if (!merged) values.zero_();
}

void PassExchange::SumOverTensorRanks(at::Tensor& values) {
  MergeOverTensorRanks("summing over the tensor ranks", Sum, values);
}

void PassExchange::MaxOverTensorRanks(at::Tensor& values) {
  MergeOverTensorRanks("the largest of the tensor ranks", Largest, values);
}

// `what` outlives it.
class PassExchange::Rows : public PendingRows {
 public:
  Rows(PassExchange* exchange, absl::string_view what) : exchange_(*exchange), what_(what) {}
  ~Rows() override { Finish(); }

  void Start(const ExchangeGroup& group, const at::Tensor& rows, const std::vector<int64_t>& sent,
             const std::vector<int64_t>& received) {
    const int64_t count = std::accumulate(received.begin(), received.end(), int64_t{0});
    const bool started = exchange_.Attempt(what_, [&]() -> absl::Status {
      PENSTOCK_RETURN_IF_ERROR(
          CheckRows("what is sent", rows.size(0), std::accumulate(sent.begin(), sent.end(), int64_t{0})));
      sent_ = rows;
      received_ = at::empty(ShapeWith(rows, count), rows.options());
      const std::vector<at::Tensor> out = Split(rows, sent);
      const std::vector<at::Tensor> in = Split(received_, received);
      const auto own = static_cast<size_t>(group.position);
      in[own].copy_(out[own]);
      PENSTOCK_ASSIGN_OR_RETURN(transfer_, exchange_.Waiting([&] { return group.start(out, in); }));
      return absl::OkStatus();
    });
    if (!started) received_ = at::zeros(ShapeWith(rows, count), rows.options());
  }

  at::Tensor Wait() override {
    if (!Finish()) received_.zero_();
    return std::move(received_);
  }

 private:
  // Whether it went well. Once there was an error nobody waits for what may never come; the transport lets go
  // of the tensors when the transfer is destroyed.
  bool Finish() {
    const std::unique_ptr<PendingTransfer> transfer = std::move(transfer_);
    if (transfer == nullptr) return exchange_.status_.ok();
    const bool finished =
        exchange_.Attempt(what_, [&] { return exchange_.Waiting([&] { return transfer->Wait(); }); });
    sent_.reset();
    return finished;
  }

  PassExchange& exchange_;
  const absl::string_view what_;
  at::Tensor sent_;
  at::Tensor received_;
  std::unique_ptr<PendingTransfer> transfer_;
};

std::unique_ptr<PendingRows> PassExchange::StartOver(const ExchangeGroup& group, absl::string_view what,
                                                     const at::Tensor& rows, const std::vector<int64_t>& sent,
                                                     const std::vector<int64_t>& received) {
  if (group.size == 1) return std::make_unique<ArrivedRows>(rows);
  auto pending = std::make_unique<Rows>(this, what);
  pending->Start(group, rows, sent, received);
  return pending;
}

at::Tensor PassExchange::ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                      const std::vector<int64_t>& received) {
  return StartRows(rows, sent, received)->Wait();
}

std::unique_ptr<PendingRows> PassExchange::StartRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                                     const std::vector<int64_t>& received) {
  return StartOver(contexts_, "exchanging with the context ranks", rows, sent, received);
}

std::unique_ptr<PendingRows> PassExchange::StartExpertRows(const at::Tensor& rows,
                                                           const std::vector<int64_t>& sent,
                                                           const std::vector<int64_t>& received) {
  return StartOver(experts_, "exchanging with the ranks of other experts", rows, sent, received);
}

at::Tensor PassExchange::ExchangeExpertCounts(const at::Tensor& counts) {
  if (experts_.size == 1) return counts;
  const std::vector<int64_t> one_each(static_cast<size_t>(experts_.size), 1);
  return StartOver(experts_, "exchanging numbers of rows with the ranks of other experts",
                   counts.view({experts_.size, -1}), one_each, one_each)
      ->Wait()
      .view({-1});
}

}  // namespace penstock::worker
