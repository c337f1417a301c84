// What adapters of Penstock's layers and of transformers' modules have to do with each other. Each of ours is
// at one of their modules; a module that makes several of our layers (GPT-2's c_attn, Phi-3's qkv_proj and
// gate_up_proj) has several of ours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// An adapter of Penstock's (worker/model/adapter_parameters.h).
struct OwnAdapter {
  v1::LinearLayer layer = v1::LINEAR_LAYER_UNSPECIFIED;
  // What its parameters' names begin with: "layers.3.attention.key".
  std::string name;
  // The weight that it is beside, and which rows of that.
  std::string weight;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t inputs = 0;

  std::string a() const { return name + ".lora_a.weight"; }
  std::string b() const { return name + ".lora_b.weight"; }
};

// Of all layers of the model, which has adapters, in order.
std::vector<OwnAdapter> OwnAdapters(const v1::ModelSpec& model);

struct AdapterModule {
  // As transformers names it: "model.layers.3.self_attn.k_proj".
  std::string name;
  int64_t outputs = 0;
  int64_t inputs = 0;
  // Those that it has, and the first of its outputs that each is at.
  struct Part {
    OwnAdapter adapter;
    int64_t first_output = 0;
  };
  std::vector<Part> parts;
};

// `family`: as of CheckpointNames.
std::vector<AdapterModule> AdapterModules(const v1::ModelSpec& model, const std::string& family);

// By which PEFT finds the module and its kin in other layers: "k_proj", "attn.c_proj".
std::string TargetOf(const AdapterModule& module);

}  // namespace penstock::cli
