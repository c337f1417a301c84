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

// Rows that go to other ranks, one after the other: of the flat activation, or of what a part found.
class SentRows {
 public:
  SentRows(const MicroBatch& shape, int context, const CarriedRow& carried)
      : divided_(DividedRowsOf(shape, context)) {
    int64_t begin = 0;
    for (const RowChunk& chunk : carried.chunks) {
      carried_[{chunk.row, chunk.first}] = begin;
      begin += chunk.length;
    }
  }

  // How many rows have been added.
  int64_t size() const { return size_; }

  void Add(const RowChunk& chunk) {
    const std::pair place(chunk.row, chunk.first);
    const auto found = divided_.begins.find(place);
    if (found != divided_.begins.end()) {
      AppendRange(found->second, chunk.length, places_);
      AppendRange(size_, chunk.length, own_places_);
    } else {
      AppendRange(carried_.at(place), chunk.length, carried_rows_);
      AppendRange(size_, chunk.length, carried_places_);
    }
    size_ += chunk.length;
  }

  void PutInto(at::Device device, KeyExchange& exchange) {
    std::vector<int64_t> rows;
    for (const int64_t index : places_) rows.push_back(divided_.rows[static_cast<size_t>(index)]);
    exchange.divided_rows = StagedFor(device, std::move(divided_.rows));
    exchange.sent_places = StagedFor(device, std::move(places_));
    exchange.sent_rows = StagedFor(device, std::move(rows));
    if (carried_rows_.empty()) return;
    exchange.carried_rows = StagedFor(device, std::move(carried_rows_));
    exchange.carried_places = StagedFor(device, std::move(carried_places_));
    exchange.own_places = StagedFor(device, std::move(own_places_));
  }

 private:
  DividedRows divided_;
  ChunkBegins carried_;
  int64_t size_ = 0;
  std::vector<int64_t> places_;
  std::vector<int64_t> own_places_;
  std::vector<int64_t> carried_rows_;
  std::vector<int64_t> carried_places_;
};

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

int64_t CarriedRow::tokens() const {
  int64_t tokens = 0;
  for (const RowChunk& chunk : chunks) tokens += chunk.length;
  return tokens;
}

CarriedRow CarriedOn(const MicroBatch& shape, const GroupPlace& place, const CarriedRow& found) {
  CarriedRow carried;
  if (shape.end_chunk == 0) return carried;
  const size_t last = RowLengths(shape, Side::kTarget).size() - 1;
  const auto add = [&](RowChunk chunk) {
    if (chunk.row != last) return;
    chunk.row = 0;
    carried.chunks.push_back(chunk);
  };
  for (const RowChunk& chunk : found.chunks) add(chunk);
  for (const ReceivedChunk& received : ChunksReceived(shape, place)) add(received.chunk);
  for (const RowChunk& chunk : ChunksOf(shape, Side::kTarget, place.context)) add(chunk);
  return carried;
}

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

KeyExchange MakeKeyExchange(const MicroBatch& shape, const GroupPlace& place, at::Device device,
                            const CarriedRow& carried) {
  SentRows sent(shape, place.context, carried);
  KeyExchange exchange;
  for (int other = 0; other < place.contexts; ++other) {
    const int64_t before = sent.size();
    for (const RowChunk& chunk : ChunksSent(shape, place.context, other)) sent.Add(chunk);
    exchange.sent.push_back(sent.size() - before);
    int64_t received = 0;
    for (const RowChunk& chunk : ChunksSent(shape, other, place.context)) received += chunk.length;
    exchange.received.push_back(received);
  }
  std::vector<int64_t> order;
  for (const ReceivedChunk& received : ChunksReceived(shape, place)) {
    AppendRange(received.arrival, received.chunk.length, order);
  }
  if (!std::ranges::is_sorted(order)) exchange.order = StagedFor(device, std::move(order));
  sent.PutInto(device, exchange);
  return exchange;
}

const ReceivedKeys& ArrivingKeys::Get() {
  if (pending_ == nullptr) return keys_;
  at::Tensor rows = std::exchange(pending_, nullptr)->Wait();
  if (order_.defined()) rows = rows.index_select(0, order_);
  if (carried_.defined()) rows = at::cat({std::exchange(carried_, {}), rows});
  keys_ = {std::move(rows)};
  return keys_;
}

ArrivingKeys StartKeys(StageGroup& group, const KeyExchange& exchange, const at::Tensor& key,
                       const at::Tensor& value, CarriedKeys carried) {
  at::Tensor sent = JoinedRows(key, value, exchange.sent_rows);
  if (exchange.carried_rows.defined()) {
    const at::Tensor all =
        at::empty({sent.size(0) + exchange.carried_rows.size(0), sent.size(1)}, sent.options());
    all.index_copy_(0, exchange.own_places, sent);
    sent = all.index_copy_(0, exchange.carried_places, carried.index_select(0, exchange.carried_rows));
  }
  return ArrivingKeys(group.StartRows(sent, exchange.sent, exchange.received), exchange.order,
                      std::move(carried));
}

CarriedKeys Keep(const KeptForNextPart& kept, const ReceivedKeys& others, const at::Tensor& key,
                 const at::Tensor& value) {
  const int64_t begin = key.size(0) - kept.own;
  const int64_t of_others = others.rows.size(0) - kept.others_begin;
  at::Tensor rows = at::empty({of_others + kept.own, others.rows.size(1)}, others.rows.options());
  rows.narrow(0, 0, of_others).copy_(others.rows.narrow(0, kept.others_begin, of_others));
  const ReceivedKeys own = {rows.narrow(0, of_others, kept.own)};
  own.key().copy_(key.narrow(0, begin, kept.own));
  own.value().copy_(value.narrow(0, begin, kept.own));
  return rows;
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
