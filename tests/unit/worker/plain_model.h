// The plain forward passes. Private to model_testing.cc.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

#include "worker/program/program.h"

namespace penstock::worker {

using PlainParameters = std::map<std::string, at::Tensor>;

// A row of whole samples: tokens, and how many of each sample are input.
struct PlainRow {
  std::vector<std::vector<int32_t>> samples;
  std::vector<uint32_t> inputs;
};

// Sums over layers and tokens, with their weights; not divided.
struct PlainRouterLosses {
  at::Tensor balance;
  at::Tensor z;
};

// Summed cross entropy over the row's loss positions. Adds the row's losses of routers.
at::Tensor PlainGptLoss(const PlainParameters& parameters, const ModelConfig& config, const PlainRow& row,
                        PlainRouterLosses& router_losses);
at::Tensor PlainT5Loss(const PlainParameters& parameters, const ModelConfig& config, const PlainRow& row);

}  // namespace penstock::worker
