#include "planner/core/placement/load_model.h"

#include <set>

#include "planner/core/cost/half_counts.h"

namespace penstock::core {
namespace {

// Tables of two terms of tokens as one table of their sum.
std::vector<EfficiencyPoint> TableOfSum(double ns, const std::vector<EfficiencyPoint>& efficiency,
                                        double other_ns, const std::vector<EfficiencyPoint>& other) {
  if ((efficiency.empty() && other.empty()) || ns + other_ns <= 0) return {};
  std::set<double> tokens;
  for (const auto* table : {&efficiency, &other})
    for (const EfficiencyPoint& point : *table) tokens.insert(point.tokens);
  std::vector<EfficiencyPoint> sum;
  for (const double at : tokens) {
    const double factor = ns * FactorAt(efficiency, at) + other_ns * FactorAt(other, at);
    sum.push_back({at, factor / (ns + other_ns)});
  }
  return sum;
}

}  // namespace

LoadModel::LoadModel(const CostModel& costs) {
  const LayerModel& model = costs.layer_model();
  double dense = 0;
  for (int stage = 0; stage < costs.stages(); ++stage) {
    layers_ += costs.stage(stage).layers();
    dense += costs.stage(stage).count(kDense);
  }
  AddLayers(costs, kDecoder, layers_ - dense);
  if (dense > 0) AddLayers(costs, kDense, dense);
  backward_ratio_ = model.backward_ratio(kDecoder, kKeepAll);
  const LayerTime& head = model.form(kHead);
  loss_ns_ = (1 + model.backward_ratio(kHead, kKeepAll)) / model.form_divisor(kHead) * head.target_token_ns;
  fixed_ns_ += (1 + model.backward_ratio(kHead, kKeepAll)) / model.form_divisor(kHead) * head.fixed_ns;
  half_loss_ = head.half_efficiency_tokens;
  loss_efficiency_ = head.efficiency;
  head_at_loss_only_ = costs.profile().layers[kHead].loss_tokens_only;
  const ExchangeModel& exchange = costs.exchange_model();
  if (costs.group().tensor > 1) {
    const bool divided = costs.group().feeds_own_tokens();
    const auto halves = [&](LayerKind kind) {
      return static_cast<double>(ForwardHalves(kind, false, divided).target) +
             static_cast<double>(BackwardHalves(kind, false, divided, kKeepAll).target);
    };
    token_exchange_ns_ =
        ((layers_ - dense) * halves(kDecoder) + dense * halves(kDense) + static_cast<double>(kHeadHalves)) *
        exchange.HalfTokenNs();
  }
  token_exchange_ns_ += (layers_ - dense) * costs.RowsTokenNs();
  if (costs.profile().cluster.attention_hides_exchange) {
    attention_square_ns_ = model.form(kDecoder).target_square_ns / model.form_divisor(kDecoder);
  }
  for (const Link link : {Link::kInsideNode, Link::kBetweenNodes}) {
    key_value_ns_[static_cast<size_t>(link)] = exchange.KeyValueTokenNs(link);
    latency_ns_[static_cast<size_t>(link)] = static_cast<double>(exchange.KeyValueLatencyNs(link));
  }
}

void LoadModel::AddLayers(const CostModel& costs, LayerKind kind, double layers) {
  const LayerModel& model = costs.layer_model();
  LayersTime time;
  const auto& backward = costs.profile().layers[kind].backward_forms;
  if (backward.has_value()) {
    const double divisor = model.table_divisor(kind);
    time.Add(model.form(kind), layers, model.form_divisor(kind));
    time.Add(backward->input, layers, divisor);
    time.Add(backward->weight, layers, divisor);
    time.half_tokens = time.token_ns > 0 ? time.overhead / time.token_ns : 0;
  } else {
    const double passes = layers * (1 + model.backward_ratio(kind, kKeepAll)) / model.form_divisor(kind);
    time.Add(model.form(kind), passes, 1);
    time.half_tokens = model.form(kind).half_efficiency_tokens;
  }
  // That of all together, where there is some already.
  const double token_ns = token_ns_ + time.token_ns;
  if (token_ns_ > 0) {
    half_tokens_ = (half_tokens_ * token_ns_ + time.half_tokens * time.token_ns) / token_ns;
  } else {
    half_tokens_ = time.half_tokens;
  }
  efficiency_ = TableOfSum(token_ns_, efficiency_, time.token_ns, time.efficiency);
  token_ns_ = token_ns;
  fixed_ns_ += time.fixed_ns;
  square_ns_ += time.square_ns;
  row_ns_ += time.row_ns;
  divided_row_ns_ += time.divided_row_ns;
}

void LoadModel::LayersTime::Add(const LayerTime& form, double times, double divisor) {
  const double ns = times * form.target_token_ns / divisor;
  efficiency = TableOfSum(token_ns, efficiency, ns, form.efficiency);
  fixed_ns += times * form.fixed_ns / divisor;
  token_ns += ns;
  // Rows are calls of their own here.
  square_ns += times * (form.target_square_ns + form.target_call_square_ns) / divisor;
  row_ns += times * form.packed_row_ns / divisor;
  divided_row_ns += times * form.divided_row_ns / divisor;
  overhead += times * form.target_token_ns / divisor * form.half_efficiency_tokens;
}

double LoadModel::WorkNs(double length, double loss) const {
  return row_ns_ + (token_ns_ + token_exchange_ns_) * length + square_ns_ * length * length +
         loss_ns_ * (head_at_loss_only_ ? loss : length);
}

}  // namespace penstock::core
