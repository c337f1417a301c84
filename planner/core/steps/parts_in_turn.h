// The parts of a micro-batch on their way through the layers of a stage: a rank computes one part until it
// has sent rows to other ranks, and while they travel the next one (execution.md, section 7, "Parts"; Jiang
// et al., "Lancet", MLSys 2024, section 5.2).
//
//   PartsInTurn parts(2);
//   parts.Run(layers, steps_of_parts);     // so many layers that are alike
//   parts.Run(...);                        // then others
//   int64_t waits = parts.End();
//
// Two resources, one line: the rank computes one thing after the other, and exchanges go one after the other.
// Times are whole nanoseconds, so the answer is exact in whatever order it is found.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace penstock::core {

// An exchange, what is computed before it may begin, and what is computed once it has begun.
struct ExchangeStep {
  int64_t before = 0;
  int64_t ns = 0;
  int64_t after = 0;
};

// What a part does in a layer.
struct LayerSteps {
  static constexpr int kMost = 4;

  std::array<ExchangeStep, kMost> exchanges = {};
  int count = 0;
  // Computed behind the last exchange.
  int64_t rest = 0;

  void Add(const ExchangeStep& step) { exchanges[static_cast<size_t>(count++)] = step; }
};

class PartsInTurn {
 public:
  explicit PartsInTurn(size_t parts) : parts_(parts) {}

  // One entry for each part; all with as many exchanges. Of layers without any, what is computed comes before
  // the next one.
  void Run(int64_t layers, absl::Span<const LayerSteps> of_parts);
  // What the rank has waited for exchanges when all parts have ended.
  int64_t End();

 private:
  struct Part {
    // Its last exchange.
    int64_t arrived = 0;
    // Left to compute of its last layer.
    int64_t owed = 0;
  };

  void RunLayer(absl::Span<const LayerSteps> of_parts);
  // How far all else is from now: layers begin alike where it is the same.
  std::vector<int64_t> Offsets() const;
  void Skip(int64_t ns);

  std::vector<Part> parts_;
  int64_t now_ = 0;
  int64_t line_ = 0;
  int64_t computed_ = 0;
};

}  // namespace penstock::core
