// --lora-rank and its kin: the adapters that a model is to have, of which they alone learn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "penstock/v1/job.pb.h"

namespace CLI {
class App;
}

namespace penstock::cli {

struct AdapterFlags {
  // 0: none.
  uint32_t rank = 0;
  // 0: as rank.
  double alpha = 0;
  std::vector<std::string> targets = {"q", "v"};
  bool rank_stabilised = false;

  // The flags, of which the others need --lora-rank.
  void AddTo(CLI::App& command);

  bool any() const { return rank > 0; }
  // Gives the model the adapters that the flags say, if any. Possible errors: INVALID_ARGUMENT (names the
  // flag: the model has none of these layers, or adapters already).
  absl::Status Give(v1::ModelSpec* model) const;
  // The same of the model of a profile, whose times are then those of it (core::AdaptProfile), unless they
  // are already. Possible errors: as above.
  absl::Status Give(v1::ProfileFile* file) const;
};

// The names of these flags.
const std::vector<const char*>& AdapterFlagNames();

}  // namespace penstock::cli
