// Placements of rows on context ranks against the best of all, by the exact costs.
//
// PENSTOCK_PLACEMENTS=N looks at N random micro-batches for each number of context ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/share.h"
#include "planner/core/placement/placer.h"
#include "tests/support/environment.h"
#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

constexpr double kAnyTokens = std::numeric_limits<double>::infinity();

// Layers from all overhead to all attention, links from such that hide to such that take as long as a layer.
v1::JobSpec RandomGroupJob(uint32_t contexts, Random* random) {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_mesh()->set_context(contexts);
  const uint32_t tensor = random->Range(1, 2);
  job.mutable_mesh()->set_tensor(tensor);
  // Drawn apart, so that the rest does not depend on it.
  Random divided = *random;
  const bool divided_rows = divided.Chance(30);
  const double half_efficiency = random->Chance(50) ? random->Range(1, 200) : 0;
  const double square = 0.001 * random->Range(1, 40);
  for (v1::LayerCost& layer : *job.mutable_profile()->mutable_layers()) {
    if (layer.name() == "head") {
      layer.set_loss_tokens_only(random->Chance(50));
    } else {
      layer.mutable_forward()->set_target_square_ns(square);
      if (random->Chance(30)) layer.mutable_forward()->set_packed_row_ns(random->Range(1, 300));
      if (divided_rows) layer.mutable_forward()->set_divided_row_ns(divided.Range(1, 3000));
    }
    layer.mutable_forward()->set_fixed_ns(random->Range(0, 3000));
    layer.mutable_forward()->set_half_efficiency_tokens(half_efficiency);
    if (half_efficiency == 0 && tensor == 2)
      SetEfficiency({{16, 1.3}, {300, 1}, {2000, 1.2}}, layer.mutable_forward());
    if (tensor == 1) continue;
    v1::TensorCost* cost = layer.add_tensor();
    cost->set_degree(tensor);
    cost->set_efficiency(0.01 * random->Range(60, 100));
  }
  v1::Cluster* cluster = job.mutable_profile()->mutable_cluster();
  cluster->set_gpus_per_node(random->Range(1, 8));
  const double bandwidth = 1e8 * static_cast<double>(1 << random->Range(4, 12));
  cluster->set_intra_node_collective_bytes_per_second(bandwidth);
  cluster->set_inter_node_collective_bytes_per_second(bandwidth / random->Range(1, 8));
  cluster->set_intra_node_collective_latency_ns(random->Range(1, 300));
  cluster->set_inter_node_collective_latency_ns(random->Range(1, 1000));
  cluster->set_attention_hides_exchange(random->Chance(70));
  return job;
}

std::vector<SampleTokens> RandomRows(uint32_t most, Random* random) {
  std::vector<SampleTokens> samples(random->Range(1, most));
  const uint32_t longest = 1u << random->Range(4, 12);
  for (SampleTokens& sample : samples) {
    sample.target = random->Range(1, random->Chance(60) ? longest / 8 : longest);
    sample.loss = random->Range(0, sample.target - 1);
  }
  return samples;
}

// All placements of a packed micro-batch, by what the slowest context rank takes for both passes of all
// layers.
class AllPlacements {
 public:
  AllPlacements(const CostModel& costs, const std::vector<SampleTokens>& samples)
      : costs_(costs), samples_(samples) {
    for (uint32_t i = 0; i < samples.size(); ++i) indices_.push_back(i);
    rows_ = RowsOf(indices_, samples_, Layout::kPacked, {});
  }

  int64_t TimeOf(const std::vector<Span>& spans, const std::vector<double>& slowness = {}) const {
    std::vector<Share> shares;
    SharesOf(rows_, samples_, spans, costs_.nodes(), costs_.group().context, &shares);
    double slowest = 0;
    for (size_t context = 0; context < shares.size(); ++context) {
      LayerCosts layers;
      EXPECT_TRUE(costs_.Layers(shares[context], &layers));
      const int64_t time = costs_.ForwardNs(0, layers) + costs_.BackwardNs(0, layers, {});
      slowest = std::max(slowest, static_cast<double>(time) * (slowness.empty() ? 1 : slowness[context]));
    }
    return std::llround(slowest);
  }

  // Memory of the fullest context rank, counted as equal parts.
  double RoomOf(const std::vector<Span>& spans, double of_key) const {
    std::vector<double> tokens(costs_.group().context, 0);
    for (size_t row = 0; row < spans.size(); ++row) {
      for (int rank = spans[row].first; rank < spans[row].first + spans[row].ranks; ++rank)
        tokens[rank] += static_cast<double>(rows_[row].length) *
                        (spans[row].ranks > 1 ? of_key + 1.0 / spans[row].ranks : 1);
    }
    return *std::max_element(tokens.begin(), tokens.end());
  }

  // Calls `visit` with every placement.
  template <typename Visit>
  void ForEach(Visit visit) const {
    std::vector<Span> spans(rows_.size());
    Choose(0, &spans, visit);
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  template <typename Visit>
  void Choose(size_t row, std::vector<Span>* spans, Visit visit) const {
    if (row == rows_.size()) return visit(*spans);
    for (int ranks = 1; ranks <= costs_.group().context; ranks *= 2) {
      if (ranks > 1 && rows_[row].length < 2 * ranks) break;
      for (int first = 0; first < costs_.group().context; first += ranks) {
        (*spans)[row] = {first, ranks};
        Choose(row + 1, spans, visit);
      }
    }
  }

  const CostModel& costs_;
  const std::vector<SampleTokens>& samples_;
  std::vector<uint32_t> indices_;
  std::vector<Row> rows_;
};

std::string Describe(const std::vector<SampleTokens>& samples, const std::vector<Span>& spans) {
  std::string text;
  for (size_t i = 0; i < spans.size(); ++i) {
    absl::StrAppend(&text, " ", samples[i].target, "@", spans[i].first, "x", spans[i].ranks);
  }
  return text;
}

struct PlacementQuality {
  int cases = 0;
  double sum = 0;
  double worst = 0;
  std::string worst_case;

  void Add(double above, const std::string& text) {
    ++cases;
    sum += above;
    if (above <= worst) return;
    worst = above;
    worst_case = text;
  }
  double mean() const { return sum / cases; }
  void Print(const std::string& name) const {
    std::cout << name << ": " << cases << " micro-batches, above the best placement: mean " << 100 * mean()
              << " %, worst " << 100 * worst << " % (" << worst_case << ")\n";
  }
};

class PlacementTest : public testing::TestWithParam<int> {};

uint32_t MostRows(int contexts) { return contexts == 2 ? 6 : 4; }

TEST_P(PlacementTest, IsNearTheBestOfAllPlacements) {
  const int count = FromEnvironment("PENSTOCK_PLACEMENTS", 300);
  PlacementQuality thorough;
  PlacementQuality quick;
  for (int seed = 0; seed < count; ++seed) {
    Random random(seed);
    const v1::JobSpec job = RandomGroupJob(GetParam(), &random);
    const CostModel costs = ModelOf(job);
    const std::vector<SampleTokens> samples = RandomRows(MostRows(GetParam()), &random);
    const AllPlacements all(costs, samples);
    int64_t best = std::numeric_limits<int64_t>::max();
    std::vector<Span> best_spans;
    all.ForEach([&](const std::vector<Span>& spans) {
      const int64_t time = all.TimeOf(spans);
      if (time >= best) return;
      best = time;
      best_spans = spans;
    });
    for (const auto& [care, quality] :
         {std::pair(Placer::Care::kThorough, &thorough), {Placer::Care::kQuick, &quick}}) {
      Placer placer(costs, {});
      std::vector<Span> spans;
      placer.Place(all.rows(), samples, care, /*slowness=*/{}, &spans);
      const auto time = static_cast<double>(all.TimeOf(spans));
      ASSERT_GE(time, best);
      quality->Add(time / static_cast<double>(best) - 1,
                   absl::StrCat("seed ", seed, ":", Describe(samples, spans), " instead of",
                                Describe(samples, best_spans)));
    }
  }
  thorough.Print(absl::StrCat(GetParam(), " context ranks, thorough"));
  quick.Print(absl::StrCat(GetParam(), " context ranks, quick"));
  EXPECT_LT(thorough.mean(), 0.005);
  EXPECT_LT(thorough.worst, 0.15);
  EXPECT_LT(quick.mean(), 0.008);
  EXPECT_LT(quick.worst, 0.6);
}

// What a rank takes for having tokens at all no single row that moves saves: very short rows are a little
// worse.
TEST_P(PlacementTest, WithASlowRankIsNearTheBest) {
  const int count = FromEnvironment("PENSTOCK_PLACEMENTS", 300);
  PlacementQuality thorough;
  PlacementQuality quick;
  double even = 0;
  for (int seed = 0; seed < count; ++seed) {
    Random random(seed + 3000000);
    const v1::JobSpec job = RandomGroupJob(GetParam(), &random);
    const CostModel costs = ModelOf(job);
    const std::vector<SampleTokens> samples = RandomRows(MostRows(GetParam()), &random);
    std::vector<double> slowness(GetParam(), 1);
    slowness[random.Range(0, GetParam() - 1)] = 0.01 * random.Range(110, 300);
    const AllPlacements all(costs, samples);
    int64_t best = std::numeric_limits<int64_t>::max();
    std::vector<Span> best_spans;
    all.ForEach([&](const std::vector<Span>& tried) {
      const int64_t time = all.TimeOf(tried, slowness);
      if (time >= best) return;
      best = time;
      best_spans = tried;
    });
    Placer placer(costs, {});
    std::vector<Span> spans;
    for (const auto& [care, quality] :
         {std::pair(Placer::Care::kThorough, &thorough), {Placer::Care::kQuick, &quick}}) {
      placer.Place(all.rows(), samples, care, slowness, &spans);
      const auto time = static_cast<double>(all.TimeOf(spans, slowness));
      quality->Add(time / static_cast<double>(best) - 1,
                   absl::StrCat("seed ", seed, ":", Describe(samples, spans), " instead of",
                                Describe(samples, best_spans)));
    }
    placer.Place(all.rows(), samples, Placer::Care::kThorough, /*slowness=*/{}, &spans);
    even += static_cast<double>(all.TimeOf(spans, slowness)) / static_cast<double>(best) - 1;
  }
  thorough.Print(absl::StrCat(GetParam(), " context ranks, one slow, thorough"));
  quick.Print(absl::StrCat(GetParam(), " context ranks, one slow, quick"));
  std::cout << "as though none were slow: above the best by " << 100 * even / count << " %\n";
  EXPECT_LT(thorough.mean(), 0.012);
  EXPECT_LT(thorough.worst, 0.4);
  EXPECT_LT(quick.mean(), 0.02);
  EXPECT_LT(quick.worst, 0.6);
  EXPECT_GT(even / count, 10 * thorough.mean());
}

TEST_P(PlacementTest, KeepsToMemoryNearlyWhereverSomePlacementDoes) {
  const int count = FromEnvironment("PENSTOCK_PLACEMENTS", 300);
  int kept = 0;
  for (int seed = 0; seed < count; ++seed) {
    Random random(seed + 1000000);
    const v1::JobSpec job = RandomGroupJob(GetParam(), &random);
    const CostModel costs = ModelOf(job);
    const std::vector<SampleTokens> samples = RandomRows(MostRows(GetParam()), &random);
    const AllPlacements all(costs, samples);
    const double of_key = random.Chance(50) ? 0 : 0.01 * random.Range(1, 40);
    double least = kAnyTokens;
    all.ForEach([&](const std::vector<Span>& spans) { least = std::min(least, all.RoomOf(spans, of_key)); });
    const double most = least * (1 + 0.01 * random.Range(0, 30));
    for (const Placer::Care care : {Placer::Care::kQuick, Placer::Care::kThorough}) {
      Placer placer(costs, {most, of_key});
      std::vector<Span> spans;
      placer.Place(all.rows(), samples, care, /*slowness=*/{}, &spans);
      const bool keeps = all.RoomOf(spans, of_key) <= most * (1 + 1e-9);
      kept += keeps ? 1 : 0;
      EXPECT_TRUE(keeps || samples.size() > 1) << "seed " << seed << ":" << Describe(samples, spans);
    }
  }
  std::cout << kept << " of " << 2 * count << " placements keep to memory\n";
  EXPECT_GE(kept, 0.96 * 2 * count);
}

TEST_P(PlacementTest, EverySpanIsAlignedAndNoChunkIsEmpty) {
  for (int seed = 0; seed < 300; ++seed) {
    Random random(seed + 2000000);
    const v1::JobSpec job = RandomGroupJob(GetParam(), &random);
    const CostModel costs = ModelOf(job);
    const std::vector<SampleTokens> samples = RandomRows(12, &random);
    const AllPlacements all(costs, samples);
    const double most = random.Chance(50) ? kAnyTokens : random.Range(1, 4000);
    const auto care = random.Chance(50) ? Placer::Care::kQuick : Placer::Care::kThorough;
    Placer placer(costs, {most, 0.1});
    std::vector<Span> spans;
    placer.Place(all.rows(), samples, care, /*slowness=*/{}, &spans);
    ASSERT_EQ(spans.size(), samples.size());
    for (size_t row = 0; row < spans.size(); ++row) {
      const Span& span = spans[row];
      ASSERT_EQ(span.ranks & (span.ranks - 1), 0);
      ASSERT_EQ(span.first % span.ranks, 0);
      ASSERT_LE(span.first + span.ranks, GetParam());
      ASSERT_TRUE(span.ranks == 1 || all.rows()[row].length >= 2 * span.ranks) << "seed " << seed;
    }
    // A placer that has placed others before places the same.
    std::vector<Span> again;
    placer.Place(all.rows(), samples, care, /*slowness=*/{}, &again);
    ASSERT_EQ(Describe(samples, spans), Describe(samples, again)) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Contexts, PlacementTest, testing::Values(2, 4));

}  // namespace
}  // namespace penstock::core
