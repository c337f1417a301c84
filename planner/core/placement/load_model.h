// How long a context rank takes for what it has of a micro-batch, over all stages of the pipeline, as a
// function that is cheap to ask after every row that is placed.
//
// Forward and whole backward pass without recompute. Terms are those of CostModel but for rounding, and keys
// and values count as the span's busiest rank sends or receives them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "planner/core/cost/cost_model.h"
#include "planner/core/model/share.h"

namespace penstock::core {

// What a context rank has so far, or what a row brings to each rank of its span.
struct Load {
  double tokens = 0;
  // Memory, in tokens.
  double room = 0;
  double squares = 0;
  double loss = 0;
  // That it has a part of.
  int32_t rows = 0;
  // Of rows that are divided.
  double divided_squares = 0;
  // Of keys and values, in one layer forward, nanoseconds, without latencies.
  double exchange_ns = 0;
  // Divided rows whose keys and values go over each kind of link.
  std::array<int32_t, kLinks> divided_rows = {};
};

class LoadModel {
 public:
  explicit LoadModel(const CostModel& costs);

  // Work of a row as though it were alone and whole, nanoseconds.
  double WorkNs(double length, double loss) const;
  // A row over `ranks` context ranks, a power of two, that reach each other over `link`.
  Load Part(double length, double loss, int ranks, Link link) const;
  double TimeNs(const Load& load) const;
  // What every rank takes beside that, whatever it has.
  double FixedNs() const { return fixed_ns_; }

 private:
  // Of layers of one kind: sums of closed forms, each so many times and divided.
  struct LayersTime {
    void Add(const LayerTime& form, double times, double divisor);

    double fixed_ns = 0;
    double token_ns = 0;
    double square_ns = 0;
    double row_ns = 0;
    double divided_row_ns = 0;
    // What `half_efficiency_tokens` add.
    double overhead = 0;
    double half_tokens = 0;
    // Of all of `token_ns`.
    std::vector<EfficiencyPoint> efficiency;
  };
  void AddLayers(const CostModel& costs, LayerKind kind, double layers);
  double ExchangeNs(const Load& load) const;

  double fixed_ns_ = 0;
  double token_ns_ = 0;
  double square_ns_ = 0;
  double row_ns_ = 0;
  double divided_row_ns_ = 0;
  double loss_ns_ = 0;
  // Tokens and positions at which half of the speed is reached.
  double half_tokens_ = 0;
  double half_loss_ = 0;
  std::vector<EfficiencyPoint> efficiency_;
  std::vector<EfficiencyPoint> loss_efficiency_;
  // Else the head runs at every token.
  bool head_at_loss_only_ = false;
  // What tensor ranks exchange for a token, over all layers.
  double token_exchange_ns_ = 0;
  // Of one layer, forward: what hides the exchange; 0 where nothing does.
  double attention_square_ns_ = 0;
  double backward_ratio_ = 0;
  double layers_ = 0;
  std::array<double, kLinks> key_value_ns_ = {};
  std::array<double, kLinks> latency_ns_ = {};
};

// Adds it `times` (1 or -1).
inline void AddTo(const Load& part, int times, Load* load) {
  load->tokens += times * part.tokens;
  load->room += times * part.room;
  load->squares += times * part.squares;
  load->loss += times * part.loss;
  load->rows += times * part.rows;
  load->divided_squares += times * part.divided_squares;
  load->exchange_ns += times * part.exchange_ns;
  for (size_t link = 0; link < kLinks; ++link) load->divided_rows[link] += times * part.divided_rows[link];
}

inline Load LoadModel::Part(double length, double loss, int ranks, Link link) const {
  Load part;
  const double share = 1.0 / ranks;
  part.tokens = length * share;
  part.squares = length * length * share;
  part.loss = loss * share;
  part.rows = 1;
  if (ranks == 1) return part;
  const auto at = static_cast<size_t>(link);
  part.divided_squares = part.squares;
  part.exchange_ns = length * (ranks - 1) * share * key_value_ns_[at];
  part.divided_rows[at] = 1;
  return part;
}

// In one layer forward: once over each kind of link, whatever the number of rows.
inline double LoadModel::ExchangeNs(const Load& load) const {
  double time = 0;
  for (size_t link = 0; link < kLinks; ++link) {
    if (load.divided_rows[link] > 0) time += latency_ns_[link];
  }
  // What is left of sums that rows have left is no exchange.
  return load.divided_rows[0] + load.divided_rows[1] > 0 ? time + load.exchange_ns : 0;
}

inline double LoadModel::TimeNs(const Load& load) const {
  if (load.tokens <= 0) return 0;
  const double speed = 1 + half_tokens_ / load.tokens;
  double time =
      (token_ns_ * load.tokens * FactorAt(efficiency_, load.tokens) + square_ns_ * load.squares) * speed +
      token_exchange_ns_ * load.tokens;
  if (row_ns_ > 0) time += row_ns_ * load.rows;
  time += divided_row_ns_ * (load.divided_rows[0] + load.divided_rows[1]);
  const double positions = head_at_loss_only_ ? load.loss : load.tokens;
  if (positions > 0) time += loss_ns_ * (positions * FactorAt(loss_efficiency_, positions) + half_loss_);
  const double exchange = ExchangeNs(load);
  if (exchange > 0) {
    const double attention = attention_square_ns_ * load.divided_squares * speed;
    time += layers_ *
            (std::max(0.0, exchange - attention) + std::max(0.0, 2 * exchange - attention * backward_ratio_));
  }
  return time;
}

}  // namespace penstock::core
