// Rows of tokens on their way to the experts and back, where ranks divide the experts (expert parallelism;
// Lepikhin et al., "GShard: scaling giant models with conditional computation and automatic sharding", ICLR
// 2021, section 3.2). Each rank has as many experts as every other, in their order, and rows go to the rank
// that has their expert.
//
//   const ExpertExchange exchange = MeetExperts(group, counts);
//   TravellingRows rows = SendToExperts(exchange, inputs);
//   ... something else ...
//   at::Tensor come = rows.Wait();                         // [rows of own experts, hidden], expert by expert
//   ... each expert's rows ...
//   rows = SendFromExperts(exchange, outputs);
//   at::Tensor returned = rows.Wait();                     // [own rows, hidden], as `inputs` were
//
// Where every rank has all experts nothing is moved or copied.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "worker/model/stage_group.h"

namespace penstock::worker {

struct ExpertExchange {
  StageGroup* group = &SoleRank();
  // Rows that go to, and come from, each rank.
  std::vector<int64_t> sent = {};
  std::vector<int64_t> received = {};
  // Rows of each of this rank's experts, from all ranks; and from each: rank by rank, of each in their order.
  std::vector<int64_t> counts = {};
  std::vector<int64_t> come = {};
  // [rows of own experts], int64: those that came, rank by rank, in the order of the experts. Undefined: they
  // are in that order.
  at::Tensor order = {};

  // Whether other ranks have experts that this one has not.
  bool is_divided() const { return sent.size() > 1; }
};

// `counts`: this rank's rows of each expert of the model, [experts], int64, on the device. All ranks call it;
// the host waits for the numbers, which come behind the rows that are on their way. Where a micro-batch has
// parts that costs little: what is computed next needs those rows, or stands in line behind them.
ExpertExchange MeetExperts(StageGroup& group, const at::Tensor& counts);

// Of a micro-batch whose rows came in parts, part by part.
struct JoinedExchange {
  // As if it had been whole: rows go back at once.
  ExpertExchange whole;
  // Of each part, [its rows of own experts], int64: where they are among those of the whole, in which of an
  // expert those of a rank follow each other, and of these those of a part.
  std::vector<at::Tensor> places;
};
JoinedExchange JoinExchanges(const std::vector<const ExpertExchange*>& of_parts, at::Device device);

// Rows on their way to the experts, or back.
class TravellingRows {
 public:
  TravellingRows() = default;
  // `order`: that which they are put in; undefined: they come in it.
  explicit TravellingRows(std::unique_ptr<PendingRows> pending, at::Tensor order = {})
      : pending_(std::move(pending)), order_(std::move(order)) {}

  // Once.
  at::Tensor Wait();

 private:
  std::unique_ptr<PendingRows> pending_;
  at::Tensor order_;
};

// `rows`: of this rank, in the order of the model's experts. To those of its own experts, which come in the
// order of the experts and, of each, of the ranks.
TravellingRows SendToExperts(const ExpertExchange& exchange, const at::Tensor& rows);
// The way back.
TravellingRows SendFromExperts(const ExpertExchange& exchange, const at::Tensor& rows);

// Rows that have a number each, which goes with them in 16 bytes behind the row.
struct NumberedRows {
  // [rows, hidden], in general with larger strides.
  at::Tensor rows;
  // [rows, 1], in the type of sums.
  at::Tensor numbers;
};

class TravellingNumberedRows {
 public:
  TravellingNumberedRows() = default;
  explicit TravellingNumberedRows(TravellingRows joined) : joined_(std::move(joined)) {}
  // They stay where they are.
  explicit TravellingNumberedRows(NumberedRows rows) : there_(std::move(rows)) {}

  // Once.
  NumberedRows Wait();

 private:
  // Of rows that travel, each with its number.
  std::optional<TravellingRows> joined_;
  NumberedRows there_;
};

TravellingNumberedRows SendToExperts(const ExpertExchange& exchange, const NumberedRows& numbered);
TravellingNumberedRows SendFromExperts(const ExpertExchange& exchange, const NumberedRows& numbered);

}  // namespace penstock::worker
