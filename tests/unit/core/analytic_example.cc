#include "tests/unit/core/analytic_example.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace penstock::core {
namespace {

using Json = nlohmann::json;

// The four points of the grid; the last was not profiled.
template <typename Function>
Json Table(Function value) {
  return Json::array(
      {Json::array({value(32.0, 32.0), value(64.0, 64.0)}), Json::array({value(64.0, 32.0), nullptr})});
}

// Milliseconds of a layer for t tokens in sequences of s.
double LayerMs(double t, double s) {
  return 0.15 + (24 * t * 10 * 10 + 2 * 10 * t * s) / (1e9 * t / (t + 512)) * 1e3;
}

double HeadMs(double t, double /*s*/) { return 0.10 + 2 * t * 10 * 100 / (1e9 * t / (t + 512)) * 1e3; }

Json Scaled(double (*time)(double, double), double factor) {
  return Table([&](double t, double s) { return factor * time(t, s); });
}

Json Megabytes(double bytes_a_token) {
  return Table([&](double t, double /*s*/) { return bytes_a_token * t * 10 / 1e6; });
}

}  // namespace

std::string AnalyticGptExample() {
  Json root;
  root["name"] = "example";
  root["model"] = {
      {"architecture", "gpt"}, {"layers", 2},           {"hidden", 10}, {"heads", 2}, {"ffn", 40},
      {"vocab", 100},          {"bytes_per_element", 2}};
  root["parameter_mb"] = {{"layer", 0.0024}, {"embedding", 0.002}};
  root["optimizer"] =
      "16-bit Adam with fp32 master copy: total state = 8 x parameter_mb (2 bytes weight + 2 gradient + 12 "
      "optimizer per "
      "parameter); ZeRO-1 divides the 12 by dp";
  root["cluster"] = {{"memory_mb", 80000},          {"intra_node_gbps", 4800},     {"inter_node_gbps", 800},
                     {"intra_node_latency_us", 10}, {"inter_node_latency_us", 20}, {"gpus_per_node", 8}};
  root["closed_form"] = {
      {"layer_forward_ms", "0.15 + (24*t*H^2 + 2*H*sum(s_i^2)) / (1e9 * t/(t+512)) * 1e3 with t = tokens"},
      {"head_forward_ms", "0.10 + 2*t*H*V / (1e9 * t/(t+512)) * 1e3"},
      {"backward", "2x forward (recompute none), 2.15x (selective), 3x (full)"},
      {"stored_mb", "34*t*H/1e6 (none), 24*t*H/1e6 (selective), 2*t*H/1e6 (full)"},
      {"split_backward", "dX = dW = half of the backward without recompute"}};
  Json grid;
  grid["micro_batch_size"] = {1, 2};
  grid["sequence_length"] = {32, 64};
  grid["layer_forward_ms"] = Scaled(LayerMs, 1);
  grid["layer_backward_ms"] = {
      {"none", Scaled(LayerMs, 2)}, {"selective", Scaled(LayerMs, 2.15)}, {"full", Scaled(LayerMs, 3)}};
  grid["layer_stored_mb"] = {{"none", Megabytes(34)}, {"selective", Megabytes(24)}, {"full", Megabytes(2)}};
  grid["layer_peak_mb"] = Megabytes(34);
  grid["head_forward_ms"] = Scaled(HeadMs, 1);
  grid["head_backward_ms"] = Scaled(HeadMs, 2);
  root["grid"] = grid;
  return root.dump();
}

}  // namespace penstock::core
