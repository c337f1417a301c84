#include "planner/core/search/steady_orders.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace penstock::core {
namespace {

// Orders that are looked at for each replica: of candidates with few passes more, so that looking takes a
// twentieth of the time of planning, whose searches have a budget that large candidates leave behind.
constexpr int64_t kFewestOrders = 2;
constexpr int64_t kMostOrders = 16;
constexpr int64_t kPassesOfMoreOrders = 4500;
// All are judged in few draws, and the best of them in more.
constexpr int kFewDrawsOfOrder = 4;
constexpr int kDrawsOfOrder = 16;
constexpr size_t kOrdersLookedAtCloser = 2;
// The draws that orders come of are not those that they are judged by.
constexpr uint64_t kOtherDraws = 0x9e3779b97f4a7c15u;

struct Order {
  std::vector<Pass> passes;
  int64_t exact_ns = 0;
  double noisy_ns = 0;
};

int OrdersToLookAt(const Candidate& candidate) {
  int64_t passes = 1;
  for (const std::vector<Pass>& order : candidate.orders) passes += static_cast<int64_t>(order.size());
  return static_cast<int>(std::min(kMostOrders, kFewestOrders + kPassesOfMoreOrders / passes));
}

class SteadyOrder {
 public:
  SteadyOrder(const ScheduleSpace& space, const PassNoise& noise, const PassNoise& other_noise, int replica,
              int64_t most_ns, Candidate* candidate)
      : evaluator_(space),
        noise_(noise),
        other_noise_(other_noise),
        replica_(replica),
        most_ns_(most_ns),
        candidate_(candidate) {}

  // Looks at so many others.
  void Run(int orders) {
    CandidateReplica& part = candidate_->replicas[replica_];
    std::vector<Pass>& own = candidate_->orders[replica_];
    if (own.empty()) return;
    orders_.push_back({.passes = own, .exact_ns = part.makespan});
    for (int draw = 0; draw < orders; ++draw) AddOrder(draw);
    if (orders_.size() == 1) return;
    Judge(kFewDrawsOfOrder);
    orders_.resize(std::min(orders_.size(), kOrdersLookedAtCloser));
    Judge(kDrawsOfOrder);
    own = std::move(orders_.front().passes);
    part.makespan = orders_.front().exact_ns;
  }

 private:
  const std::vector<int32_t>& slots() const { return candidate_->replicas[replica_].slots; }

  void AddOrder(int draw) {
    Order order;
    evaluator_.ScheduleUnderNoise(candidate_->table, slots(), candidate_->replicas[replica_].rules,
                                  candidate_->orders[replica_], replica_, other_noise_, draw, &order.passes);
    if (order.passes.empty()) return;
    order.exact_ns = evaluator_.Replay(candidate_->table, slots(), order.passes, replica_, most_ns_);
    if (order.exact_ns < kInfeasibleNs) orders_.push_back(std::move(order));
  }

  void Judge(int draws) {
    std::vector<int64_t> makespans(draws);
    for (Order& order : orders_) {
      evaluator_.ReplayUnderNoise(candidate_->table, slots(), order.passes, replica_, noise_,
                                  absl::MakeSpan(makespans));
      order.noisy_ns =
          MeanOfLongest(static_cast<int>(candidate_->replicas.size()), absl::MakeSpan(makespans));
    }
    std::ranges::stable_sort(orders_, {}, &Order::noisy_ns);
  }

  ReplicaEvaluator evaluator_;
  const PassNoise& noise_;
  const PassNoise& other_noise_;
  const int replica_;
  const int64_t most_ns_;
  Candidate* candidate_;
  std::vector<Order> orders_;
};

}  // namespace

double MeanOfLongest(int replicas, absl::Span<int64_t> makespans) {
  std::ranges::sort(makespans);
  const auto count = static_cast<double>(makespans.size());
  double mean = 0;
  double below = 0;
  for (size_t i = 0; i < makespans.size(); ++i) {
    // Of all replicas, that none takes longer.
    double up_to = 1;
    for (int replica = 0; replica < replicas; ++replica) up_to *= static_cast<double>(i + 1) / count;
    mean += (up_to - below) * static_cast<double>(makespans[i]);
    below = up_to;
  }
  return mean;
}

void SteadyOrders(const ScheduleSpace& space, uint64_t noise_seed, const RunTasks& run_tasks,
                  Candidate* candidate) {
  const double deviation = space.costs().profile().pass_noise;
  const PassNoise noise(deviation, noise_seed);
  const PassNoise other_noise(deviation, noise_seed ^ kOtherDraws);
  const int orders = OrdersToLookAt(*candidate);
  const int64_t fastest_ns = std::min(candidate->makespan, candidate->fastest);
  const auto most_ns = static_cast<int64_t>(kAboutAsLong * static_cast<double>(fastest_ns));
  run_tasks(static_cast<int>(candidate->replicas.size()), [&](int replica) {
    if (space.stop().stopped()) return;
    SteadyOrder(space, noise, other_noise, replica, most_ns, candidate).Run(orders);
  });
  if (space.stop().stopped()) return;
  SetMakespan(candidate);
}

}  // namespace penstock::core
