#include "planner/core/cost/exchange_model.h"

#include <algorithm>
#include <cmath>

#include "planner/core/cost/half_counts.h"
#include "planner/core/cost/rounding.h"

namespace penstock::core {
namespace {

// A number goes with the gradient of each row (worker/model/expert_exchange.h).
constexpr int64_t kRowNumberBytes = 16;

}  // namespace

ExchangeModel::ExchangeModel(const Profile& profile, const Job& job, const Nodes& nodes)
    : group_(job.topology.shape().group),
      attention_hides_exchange_(profile.cluster.attention_hides_exchange),
      of_tensors_(SpeedOf(profile.cluster, nodes.OfTensorRanks(), group_.tensor)),
      of_experts_(SpeedOf(profile.cluster, nodes.OfExpertRanks(), group_.expert)),
      of_contexts_({SpeedOf(profile.cluster, Link::kInsideNode, group_.context),
                    SpeedOf(profile.cluster, Link::kBetweenNodes, group_.context)}),
      experts_per_token_(job.experts_per_token),
      fullest_experts_(profile.fullest_experts),
      token_bytes_(job.hidden * job.bytes_per_element),
      key_value_bytes_(2 * ((job.key_value_heads + group_.tensor - 1) / group_.tensor) * job.head_width *
                       job.bytes_per_element) {}

ExchangeModel::Speed ExchangeModel::SpeedOf(const Cluster& cluster, Link link, int ranks) {
  if (link == Link::kBetweenNodes)
    return {cluster.inter_node_collective_bytes_per_second, cluster.inter_node_collective_latency_ns};
  for (const CollectiveSpeed& speed : cluster.collective_speeds)
    if (speed.ranks == ranks) return {speed.bytes_per_second, speed.latency_ns};
  return {cluster.intra_node_collective_bytes_per_second, cluster.intra_node_collective_latency_ns};
}

int64_t ExchangeModel::Speed::Ns(int64_t bytes) const {
  return latency_ns + RoundToInteger(static_cast<double>(bytes) / bytes_per_second * 1e9);
}

ExchangeCosts::Half ExchangeModel::HalfOf(double tokens) const {
  if (group_.tensor == 1) return {};
  const int64_t bytes = static_cast<int64_t>(tokens) * token_bytes_ * (group_.tensor - 1) / group_.tensor;
  return {bytes, of_tensors_.Ns(bytes)};
}

// Of E ranks each has one E-th of the experts, and on average so many of the rows.
ExchangeCosts::Half ExchangeModel::RowsOf(double tokens, int64_t row_bytes) const {
  const int64_t bytes = static_cast<int64_t>(tokens) * experts_per_token_ * row_bytes * (group_.expert - 1) /
                        (int64_t{group_.expert} * group_.tensor);
  return {bytes, of_experts_.Ns(OfFullest(bytes))};
}

int64_t ExchangeModel::OfFullest(int64_t even_bytes) const {
  return static_cast<int64_t>(std::floor(static_cast<double>(even_bytes) * fullest_experts_));
}

double ExchangeModel::RowsTokenNs() const {
  if (!group_.divides_experts()) return 0;
  const double bytes = static_cast<double>(kRowExchanges * experts_per_token_) *
                       static_cast<double>(2 * token_bytes_ + kRowNumberBytes) * (group_.expert - 1) /
                       (static_cast<double>(group_.expert) * group_.tensor);
  return bytes * fullest_experts_ / of_experts_.bytes_per_second * 1e9;
}

int64_t ExchangeModel::RowBytes(const TokenSums& sums) const {
  if (!group_.divides_experts()) return 0;
  const auto tokens = static_cast<int64_t>(sums.target);
  const int64_t most = tokens - tokens / group_.tensor * (group_.tensor - 1);
  return OfFullest(most * experts_per_token_ * (token_bytes_ + kRowNumberBytes));
}

double ExchangeModel::HalfTokenNs() const {
  return static_cast<double>(token_bytes_) * (group_.tensor - 1) / group_.tensor /
         of_tensors_.bytes_per_second * 1e9;
}

int64_t ExchangeModel::GatheredBytes(const TokenSums& sums) const {
  if (group_.tensor == 1) return 0;
  return 2 * static_cast<int64_t>(sums.source + sums.target) * token_bytes_;
}

ExchangeCosts ExchangeModel::Costs(const Share& share, const LayerModel& model) const {
  ExchangeCosts costs;
  costs.source = HalfOf(share.sums.source);
  costs.target = HalfOf(share.sums.target);
  if (group_.divides_experts()) {
    costs.rows = RowsOf(share.sums.target, token_bytes_);
    costs.row_gradients = RowsOf(share.sums.target, token_bytes_ + kRowNumberBytes);
  }
  if (!share.exchanges()) return costs;
  for (const Link link : {Link::kInsideNode, Link::kBetweenNodes}) {
    const int64_t sent = share.sent[static_cast<size_t>(link)];
    const int64_t received = share.received[static_cast<size_t>(link)];
    if (sent + received == 0) continue;
    costs.context_ns += OfContexts(link).Ns(std::max(sent, received) * key_value_bytes_);
    costs.sent_bytes += sent * key_value_bytes_;
    costs.received_bytes += received * key_value_bytes_;
  }
  const double attention =
      attention_hides_exchange_ ? model.AttentionNs(share.divided_square, share.sums.target) : 0;
  costs.exposed_forward_ns = std::max<int64_t>(0, costs.context_ns - RoundToInteger(attention));
  for (int level = 0; level < kRecomputeLevels; ++level) {
    const double backward = attention * model.backward_ratio(kDecoder, static_cast<RecomputeLevel>(level));
    costs.exposed_backward_ns[level] = std::max<int64_t>(0, 2 * costs.context_ns - RoundToInteger(backward));
  }
  return costs;
}

}  // namespace penstock::core
