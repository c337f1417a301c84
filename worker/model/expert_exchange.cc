#include "worker/model/expert_exchange.h"

#include <ATen/ATen.h>

#include <numeric>
#include <utility>

#include "worker/torch/data_type.h"
#include "worker/torch/to_device.h"

namespace penstock::worker {
namespace {

// Rows stay aligned for the kernels that read them.
constexpr int64_t kNumberBytes = 16;

int64_t Sum(const int64_t* begin, const int64_t* end) { return std::accumulate(begin, end, int64_t{0}); }

// Of rows that lie rank by rank, and of each rank expert by expert: where those of each expert are.
std::vector<int64_t> ExpertByExpert(const int64_t* counts, int64_t ranks, int64_t experts) {
  const auto total = static_cast<size_t>(ranks * experts);
  std::vector<int64_t> begins(total);
  std::exclusive_scan(counts, counts + total, begins.begin(), int64_t{0});
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(Sum(counts, counts + total)));
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto stretch = static_cast<size_t>(rank * experts + expert);
      for (int64_t i = 0; i < counts[stretch]; ++i) order.push_back(begins[stretch] + i);
    }
  }
  return order;
}

// Calls `each` with the stretches of rows that come, by rank and expert, in the order of the experts.
template <typename Each>
void ForEachStretch(size_t stretches, size_t experts, Each each) {
  for (size_t expert = 0; expert < experts; ++expert) {
    for (size_t at = expert; at < stretches; at += experts) each(at);
  }
}

void AddTo(std::vector<int64_t>& sums, const std::vector<int64_t>& numbers) {
  sums.resize(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) sums[i] += numbers[i];
}

at::Tensor OrderOfArrival(const std::vector<int64_t>& come, int64_t ranks, at::Device device) {
  const auto experts = static_cast<int64_t>(come.size()) / ranks;
  if (ranks == 1 || experts == 1) return {};
  return ToDevice(StagedFor(device, ExpertByExpert(come.data(), ranks, experts)), device);
}

// [rows, hidden and the number's room].
at::Tensor Joined(const NumberedRows& numbered) {
  const int64_t hidden = numbered.rows.size(1);
  const auto element = static_cast<int64_t>(numbered.rows.element_size());
  const at::Tensor number = numbered.numbers.view(numbered.rows.scalar_type());
  at::Tensor joined =
      at::empty({numbered.rows.size(0), hidden + kNumberBytes / element}, numbered.rows.options());
  joined.narrow(1, 0, hidden).copy_(numbered.rows);
  joined.narrow(1, hidden, number.size(1)).copy_(number);
  const int64_t used = hidden + number.size(1);
  joined.narrow(1, used, joined.size(1) - used).zero_();
  return joined;
}

NumberedRows Parted(const at::Tensor& joined) {
  const auto element = static_cast<int64_t>(joined.element_size());
  const int64_t hidden = joined.size(1) - kNumberBytes / element;
  const at::ScalarType wide = AccumulationType(joined.scalar_type());
  const int64_t columns = static_cast<int64_t>(c10::elementSize(wide)) / element;
  return {joined.narrow(1, 0, hidden), joined.narrow(1, hidden, columns).contiguous().view(wide)};
}

}  // namespace

ExpertExchange MeetExperts(StageGroup& group, const at::Tensor& counts) {
  const int64_t ranks = group.place().experts;
  const int64_t experts = counts.size(0) / ranks;
  const at::Tensor numbers = at::cat({counts, group.ExchangeExpertCounts(counts)}).cpu();
  const int64_t* const own = numbers.const_data_ptr<int64_t>();
  const int64_t* const come = own + counts.size(0);
  ExpertExchange exchange = {.group = &group,
                             .counts = std::vector<int64_t>(static_cast<size_t>(experts)),
                             .come = {come, come + counts.size(0)}};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    exchange.sent.push_back(Sum(own + rank * experts, own + (rank + 1) * experts));
    exchange.received.push_back(Sum(come + rank * experts, come + (rank + 1) * experts));
    for (int64_t i = 0; i < experts; ++i) exchange.counts[static_cast<size_t>(i)] += come[rank * experts + i];
  }
  exchange.order = OrderOfArrival(exchange.come, ranks, counts.device());
  return exchange;
}

JoinedExchange JoinExchanges(const std::vector<const ExpertExchange*>& of_parts, at::Device device) {
  JoinedExchange joined = {.whole = {.group = of_parts.front()->group}, .places = {}};
  ExpertExchange& whole = joined.whole;
  for (const ExpertExchange* const part : of_parts) {
    AddTo(whole.sent, part->sent);
    AddTo(whole.received, part->received);
    AddTo(whole.counts, part->counts);
    AddTo(whole.come, part->come);
  }
  whole.order = OrderOfArrival(whole.come, static_cast<int64_t>(whole.sent.size()), device);
  std::vector<int64_t> next(whole.come.size());
  int64_t begin = 0;
  ForEachStretch(next.size(), whole.counts.size(),
                 [&](size_t at) { next[at] = std::exchange(begin, begin + whole.come[at]); });
  for (const ExpertExchange* const part : of_parts) {
    std::vector<int64_t> places;
    places.reserve(static_cast<size_t>(std::accumulate(part->come.begin(), part->come.end(), int64_t{0})));
    ForEachStretch(next.size(), whole.counts.size(), [&](size_t at) {
      for (int64_t i = 0; i < part->come[at]; ++i) places.push_back(next[at]++);
    });
    joined.places.push_back(ToDevice(StagedFor(device, std::move(places)), device));
  }
  return joined;
}

at::Tensor TravellingRows::Wait() {
  const at::Tensor come = std::exchange(pending_, nullptr)->Wait();
  return order_.defined() ? come.index_select(0, std::exchange(order_, {})) : come;
}

NumberedRows TravellingNumberedRows::Wait() {
  return joined_.has_value() ? Parted(joined_->Wait()) : std::move(there_);
}

TravellingRows SendToExperts(const ExpertExchange& exchange, const at::Tensor& rows) {
  return TravellingRows(exchange.group->StartExpertRows(rows, exchange.sent, exchange.received),
                        exchange.order);
}

TravellingRows SendFromExperts(const ExpertExchange& exchange, const at::Tensor& rows) {
  const at::Tensor gone =
      exchange.order.defined() ? at::empty_like(rows).index_copy_(0, exchange.order, rows) : rows;
  return TravellingRows(exchange.group->StartExpertRows(gone, exchange.received, exchange.sent));
}

TravellingNumberedRows SendToExperts(const ExpertExchange& exchange, const NumberedRows& numbered) {
  return exchange.is_divided() ? TravellingNumberedRows(SendToExperts(exchange, Joined(numbered)))
                               : TravellingNumberedRows(numbered);
}

TravellingNumberedRows SendFromExperts(const ExpertExchange& exchange, const NumberedRows& numbered) {
  return exchange.is_divided() ? TravellingNumberedRows(SendFromExperts(exchange, Joined(numbered)))
                               : TravellingNumberedRows(numbered);
}

}  // namespace penstock::worker
