// A job that is small enough to be run dozens of times, and its data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"

namespace penstock::testing {

// A GPT of 4 layers, hidden 16, vocabulary 29, sequences of at most 24 tokens; clipping, weight decay and a
// learning rate that warms up and decays, so that 3 iterations go through all of them. Mesh 1 x 1, policy
// dynamic, float64.
v1::JobSpec TinyJob();

// The same for a pipeline of 2 stages and 2 replicas of it.
v1::JobSpec TinyJobOnFourRanks(const std::string& job_id, uint64_t iterations);

// A sample of the tiny dataset: tokens as a function of its index alone.
struct TinySample {
  std::vector<int32_t> input;
  std::vector<int32_t> target;
  // What each token of the target weighs in the loss; empty: 1.
  std::vector<float> weights = {};
};

// `count` samples of 1 to 24 tokens; some without input.
std::vector<TinySample> TinySamples(size_t count);

// Writes them as a dataset. `prefix` is its path without .bin and .idx.
void WriteTinyDataset(const std::string& prefix, const std::vector<TinySample>& samples);

// Iteration i holds samples i * size to (i + 1) * size - 1, cyclically.
std::vector<v1::Batch> TinyBatches(const std::vector<TinySample>& samples, size_t size, uint64_t iterations);

}  // namespace penstock::testing
