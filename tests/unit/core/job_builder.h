// Small jobs and batches for tests of the planning core.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "penstock/v1/job.pb.h"
#include "penstock/v1/plan.pb.h"
#include "planner/core/cost/cost_model.h"

namespace penstock::core {

// A GPT of 8 layers whose times are round: a layer takes 1000 ns + 10 ns a token + 0.01 ns a squared token,
// backward twice that; every layer stores 100 bytes a token, 10 when it keeps its input only. float32, 4
// elements a token.
v1::JobSpec GptJob(uint32_t pipeline, uint32_t data, v1::Policy policy);

// Gives a GPT 4 experts of the width 10 over 4 context ranks; a token goes to one.
void DivideExperts(v1::JobSpec& job);

// A T5 of 4 encoder and 4 decoder layers with times of the same size.
v1::JobSpec T5Job(uint32_t pipeline, uint32_t data, v1::Policy policy);

// The job and its profile must be valid.
CostModel ModelOf(const v1::JobSpec& spec);

// Points of a table of efficiency as (tokens, factor), in place of any other efficiency.
void SetEfficiency(const std::vector<std::pair<double, double>>& points, v1::LayerTime* time);

// Lengths as (input, target).
v1::Batch MakeBatch(const std::vector<std::pair<uint32_t, uint32_t>>& lengths);

}  // namespace penstock::core
