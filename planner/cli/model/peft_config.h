// adapter_config.json of PEFT, Hugging Face's library of adapters.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/model/adapter_modules.h"

namespace penstock::cli {

inline constexpr char kPeftConfig[] = "adapter_config.json";
inline constexpr char kPeftTensors[] = "adapter_model.safetensors";
// What the names of its tensors begin with; the module's name follows.
inline constexpr char kPeftPrefix[] = "base_model.model.";

// Of the adapters of a model that is written as these modules. One that has n of our adapters has the rank n
// * r, of which each has r.
nlohmann::ordered_json PeftConfigOf(const v1::ModelSpec& model, const std::string& family,
                                    const std::vector<AdapterModule>& modules);

// Of the config alone: what the tensors decide (rank by module, targets) is left open.
struct PeftConfig {
  uint32_t rank = 0;
  double alpha = 0;
  bool rank_stabilised = false;
  // By what module names end with.
  std::map<std::string, uint32_t> rank_pattern;
  std::map<std::string, double> alpha_pattern;

  uint32_t RankOf(const std::string& module) const;
  double AlphaOf(const std::string& module) const;
};

// Possible errors: NOT_FOUND (no such file), INVALID_ARGUMENT (another kind of adapter than LoRA, or a
// variant that Penstock does not have: names the field and what to do instead).
absl::StatusOr<PeftConfig> ReadPeftConfig(const std::string& folder);

}  // namespace penstock::cli
