#include "worker/model/key_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "worker/torch/data_type.h"
#include "worker/torch/to_device.h"

namespace penstock::worker {
namespace {

int64_t Sum(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

void AppendRange(int64_t begin, int64_t length, std::vector<int64_t>& numbers) {
  for (int64_t i = 0; i < length; ++i) numbers.push_back(begin + i);
}

// Where chunks begin, by row and place in the row.
using ChunkBegins = std::map<std::pair<size_t, int64_t>, int64_t>;

// Of the divided rows' chunks on a rank: their rows in the flat activation, and where each chunk begins among
// these.
struct DividedRows {
  std::vector<int64_t> rows;
  ChunkBegins begins;
};

DividedRows DividedRowsOf(const MicroBatch& shape, int context) {
  DividedRows divided;
  int64_t begin = 0;
  for (const RowChunk& chunk : ChunksOf(shape, Side::kTarget, context)) {
    if (shape.spans[chunk.row].ranks > 1) {
      divided.begins[{chunk.row, chunk.first}] = static_cast<int64_t>(divided.rows.size());
      AppendRange(begin, chunk.length, divided.rows);
    }
    begin += chunk.length;
  }
  return divided;
}

// Two halves of the columns from two tensors, rows of which are taken.
at::Tensor JoinedRows(const at::Tensor& left, const at::Tensor& right, const at::Tensor& rows) {
  const at::Tensor joined = at::empty({rows.size(0), left.size(1) + right.size(1)}, left.options());
  at::Tensor first = joined.narrow(1, 0, left.size(1));
  at::Tensor second = joined.narrow(1, left.size(1), right.size(1));
  at::index_select_out(first, left, 0, rows);
  at::index_select_out(second, right, 0, rows);
  return joined;
}

void AddToRows(const at::Tensor& rows, const at::Tensor& sum, const at::Tensor& gradient) {
  const at::Tensor own = gradient.index_select(0, rows).to(sum.scalar_type());
  gradient.index_copy_(0, rows, own.add_(sum).to(gradient.scalar_type()));
}

}  // namespace

int64_t KeyExchange::received_rows() const { return Sum(received); }

std::vector<ReceivedChunk> ChunksReceived(const MicroBatch& shape, const GroupPlace& place) {
  std::vector<ReceivedChunk> chunks;
  int64_t arrival = 0;
  for (int from = 0; from < place.contexts; ++from) {
    for (const RowChunk& chunk : ChunksSent(shape, from, place.context)) {
      chunks.push_back({chunk, arrival});
      arrival += chunk.length;
    }
  }
  std::ranges::stable_sort(chunks, {}, [](const ReceivedChunk& received) { return received.chunk.row; });
  return chunks;
}

KeyExchange MakeKeyExchange(const MicroBatch& shape, const GroupPlace& place, at::Device device) {
  DividedRows divided = DividedRowsOf(shape, place.context);
  KeyExchange exchange;
  std::vector<int64_t> places;
  for (int other = 0; other < place.contexts; ++other) {
    const size_t before = places.size();
    for (const RowChunk& chunk : ChunksSent(shape, place.context, other)) {
      AppendRange(divided.begins.at({chunk.row, chunk.first}), chunk.length, places);
    }
    exchange.sent.push_back(static_cast<int64_t>(places.size() - before));
    int64_t received = 0;
    for (const RowChunk& chunk : ChunksSent(shape, other, place.context)) received += chunk.length;
    exchange.received.push_back(received);
  }
  std::vector<int64_t> order;
  for (const ReceivedChunk& received : ChunksReceived(shape, place)) {
    AppendRange(received.arrival, received.chunk.length, order);
  }
  if (!std::ranges::is_sorted(order)) exchange.order = StagedFor(device, std::move(order));
  std::vector<int64_t> rows;
  for (const int64_t index : places) rows.push_back(divided.rows[static_cast<size_t>(index)]);
  exchange.divided_rows = StagedFor(device, std::move(divided.rows));
  exchange.sent_places = StagedFor(device, std::move(places));
  exchange.sent_rows = StagedFor(device, std::move(rows));
  return exchange;
}

const ReceivedKeys& ArrivingKeys::Get() {
  if (pending_ == nullptr) return keys_;
  const at::Tensor rows = std::exchange(pending_, nullptr)->Wait();
  keys_ = {order_.defined() ? rows.index_select(0, order_) : rows};
  return keys_;
}

ArrivingKeys StartKeys(StageGroup& group, const KeyExchange& exchange, const at::Tensor& key,
                       const at::Tensor& value) {
  return ArrivingKeys(
      group.StartRows(JoinedRows(key, value, exchange.sent_rows), exchange.sent, exchange.received),
      exchange.order);
}

std::unique_ptr<PendingRows> StartKeyGradients(StageGroup& group, const KeyExchange& exchange,
                                               const ReceivedKeys& others) {
  at::Tensor rows = others.rows;
  if (exchange.order.defined()) rows = at::empty_like(rows).index_copy_(0, exchange.order, rows);
  return group.StartRows(rows, exchange.received, exchange.sent);
}

void AddKeyGradients(const KeyExchange& exchange, PendingRows& pending, const at::Tensor& key,
                     const at::Tensor& value) {
  const at::Tensor returned = pending.Wait();
  const auto wide = returned.options().dtype(AccumulationType(returned.scalar_type()));
  const at::Tensor sum = at::zeros({exchange.divided_rows.size(0), returned.size(1)}, wide);
  int64_t begin = 0;
  for (const int64_t count : exchange.sent) {
    // No rank is sent a row twice: the order of a sum is that of the ranks on a GPU too.
    if (count > 0) {
      sum.index_add_(0, exchange.sent_places.narrow(0, begin, count),
                     returned.narrow(0, begin, count).to(wide));
    }
    begin += count;
  }
  AddToRows(exchange.divided_rows, sum.narrow(1, 0, key.size(1)), key);
  AddToRows(exchange.divided_rows, sum.narrow(1, key.size(1), value.size(1)), value);
}

}  // namespace penstock::worker
