// Pipelines whose micro-batches are divided over the ranks of stage groups, a thread each, and the same
// pipeline of one rank.
//
//   const Placed& placed = PlacedSamples()[1];
//   const Whole whole = RunWhole(config, placed, Layout::kPacked, {2, 2});
//   EXPECT_LT(Difference(RunDivided(config, placed, Layout::kPacked, {2, 2}), whole), 1e-12);
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/thread_stage_group.h"
#include "tests/unit/worker/model_testing.h"
#include "worker/model/transformer_stage.h"
#include "worker/program/program.h"

namespace penstock::worker {

inline constexpr uint64_t kRankSeed = 11;

// Samples, and which context ranks have them.
struct Placed {
  int contexts = 1;
  std::vector<TestSample> samples;
  // Of concatenated rows, which hold two samples each, every second one is left out.
  std::vector<Span> spans;
};

const std::vector<Placed>& PlacedSamples();

MicroBatch ShapeOf(const ModelConfig& config, const Placed& placed, Layout layout);

// The passes of a pipeline on one rank of each stage group, with what its stages give each other.
class RankPipeline {
 public:
  RankPipeline(const ModelConfig& config, const std::vector<uint32_t>& layers, StageGroup& group);

  // Adds loss and gradients of one micro-batch.
  void Run(const MicroBatch& shape, const Tokens& ids, const TestPipeline::Options& options,
           double loss_tokens);

  // With whole parameters, zero where other tensor ranks have them.
  Result result() const;
  // What went to the last stage.
  const at::Tensor& boundary() const { return boundary_; }
  ExpertLoads TakeExpertLoads() { return stages_.front()->TakeExpertLoads(); }
  // All tokens go to the first experts.
  void BlindRouters();

 private:
  void Backward(std::vector<StageForward> forwards, const TestPipeline::Options& options);

  const ModelConfig config_;
  const std::vector<uint32_t> layers_;
  StageGroup& group_;
  std::vector<std::unique_ptr<Stage>> stages_;
  double loss_ = 0;
  RouterLosses router_losses_;
  at::Tensor boundary_;
};

// Of the undivided micro-batch: sums over all ranks of the stage groups, and their rows of the boundary in
// their places.
struct Whole {
  Result result;
  at::Tensor boundary;
};

Whole RunWhole(const ModelConfig& config, const Placed& placed, Layout layout,
               const std::vector<uint32_t>& layers);

// `shape`: of the samples.
Whole RunDivided(const ModelConfig& config, const Placed& placed, const MicroBatch& shape,
                 const std::vector<uint32_t>& layers, const TestPipeline::Options& options = {},
                 int tensors = 1, int experts = 1);
Whole RunDivided(const ModelConfig& config, const Placed& placed, Layout layout,
                 const std::vector<uint32_t>& layers, const TestPipeline::Options& options = {},
                 int tensors = 1, int experts = 1);

void Add(const Result& part, Result& sum);
double Difference(const Whole& left, const Whole& right);

// Passes calls on, and counts what context ranks exchange.
class CountingGroup : public StageGroup {
 public:
  explicit CountingGroup(StageGroup* group) : group_(*group) {}

  GroupPlace place() const override { return group_.place(); }
  at::Tensor GatherRows(const at::Tensor& own, const ListedRows& rows) override {
    return group_.GatherRows(own, rows);
  }
  at::Tensor SumRows(const at::Tensor& partial, const ListedRows& rows) override {
    return group_.SumRows(partial, rows);
  }
  void SumOverTensorRanks(at::Tensor& values) override { group_.SumOverTensorRanks(values); }
  void MaxOverTensorRanks(at::Tensor& values) override { group_.MaxOverTensorRanks(values); }
  at::Tensor ExchangeRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                          const std::vector<int64_t>& received) override {
    at::Tensor result = group_.ExchangeRows(rows, sent, received);
    ++exchanges;
    sent_bytes += static_cast<int64_t>(rows.nbytes());
    received_bytes += static_cast<int64_t>(result.nbytes());
    return result;
  }
  std::unique_ptr<PendingRows> StartExpertRows(const at::Tensor& rows, const std::vector<int64_t>& sent,
                                               const std::vector<int64_t>& received) override {
    return group_.StartExpertRows(rows, sent, received);
  }
  at::Tensor ExchangeExpertCounts(const at::Tensor& counts) override {
    return group_.ExchangeExpertCounts(counts);
  }
  absl::Status status() const override { return group_.status(); }

  int64_t exchanges = 0;
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;

 private:
  StageGroup& group_;
};

}  // namespace penstock::worker
