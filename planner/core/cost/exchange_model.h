// What the ranks of a stage group exchange inside a layer, and what that takes (execution.md, section 7).
//
// Every collective is rounded to whole nanoseconds alone, so that sums do not depend on their order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "planner/core/cost/layer_costs.h"
#include "planner/core/cost/layer_model.h"
#include "planner/core/cost/profile.h"
#include "planner/core/model/share.h"
#include "planner/core/model/types.h"
#include "planner/core/topology/nodes.h"

namespace penstock::core {

class ExchangeModel {
 public:
  // Of a loaded profile (loaded_experts.h).
  ExchangeModel(const Profile& profile, const Job& job, const Nodes& nodes);

  // Whether anything can be: a stage group has several ranks.
  bool any() const { return group_.ranks() > 1; }
  // Of a share. `model` says what attention takes.
  ExchangeCosts Costs(const Share& share, const LayerModel& model) const;

  // Keys and values of a token in one layer of one rank, bytes.
  int64_t key_value_bytes() const { return key_value_bytes_; }
  // Of all tokens of a context rank: what a layer that is divided over tensor ranks gathers, and the sums
  // that it makes, bytes.
  int64_t GatheredBytes(const TokenSums& sums) const;
  // A gather or a sum over tensor ranks, as a line through its tokens: for bounds. Nanoseconds.
  double HalfTokenNs() const;
  int64_t HalfLatencyNs() const { return group_.tensor > 1 ? of_tensors_.latency_ns : 0; }
  // The rows of a token of a context rank, to experts on other ranks and back, in a forward and in a backward
  // pass of one layer that keeps everything: as HalfTokenNs; 0 where no ranks divide the experts.
  double RowsTokenNs() const;
  // What exchanging any takes at least, once.
  int64_t RowsLatencyNs() const { return group_.expert > 1 ? of_experts_.latency_ns : 0; }
  // Of the rows that the fullest rank has for its part of so many tokens, bytes; 0 likewise.
  int64_t RowBytes(const TokenSums& sums) const;
  // Keys and values of a token, in one layer; and what exchanging any takes at least.
  double KeyValueTokenNs(Link link) const {
    return static_cast<double>(key_value_bytes_) / OfContexts(link).bytes_per_second * 1e9;
  }
  int64_t KeyValueLatencyNs(Link link) const { return OfContexts(link).latency_ns; }

 private:
  // What ranks reach each other with in a collective.
  struct Speed {
    double bytes_per_second = 0;
    int64_t latency_ns = 0;

    int64_t Ns(int64_t bytes) const;
  };

  // Over so many ranks.
  static Speed SpeedOf(const Cluster& cluster, Link link, int ranks);
  const Speed& OfContexts(Link link) const { return of_contexts_[static_cast<size_t>(link)]; }
  ExchangeCosts::Half HalfOf(double tokens) const;
  // Of rows: what the fullest rank has.
  int64_t OfFullest(int64_t even_bytes) const;
  // `row_bytes`: of one row.
  ExchangeCosts::Half RowsOf(double tokens, int64_t row_bytes) const;

  GroupShape group_;
  bool attention_hides_exchange_;
  Speed of_tensors_;
  Speed of_experts_;
  // By link, whatever the span of a row.
  std::array<Speed, kLinks> of_contexts_;
  int64_t experts_per_token_;
  // Rows of the fullest of the ranks that divide the experts, over an even share: the others wait for it.
  double fullest_experts_;
  // Of a token between layers.
  int64_t token_bytes_;
  int64_t key_value_bytes_;
};

}  // namespace penstock::core
