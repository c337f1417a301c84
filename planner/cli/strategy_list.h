// Strategies as people write them: a mesh each, or several side by side, with a + between them.
//
//   --strategies 'pp 2 x dp 4; pp 1 x dp 2 x cp 4; tp 4 + dp 4'
//   --strategies pool.txt     the same, one a line; what follows a # is a comment
//
// Degrees that are not named are 1. "pp 2 x dp 4, layers 7,9" says how its layers are divided into stages,
// and "on 0,1" behind it on which ranks of the pipeline they are (--layers-per-stage, --rank-of-stage).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "penstock/v1/job.pb.h"

namespace CLI {
class App;
}

namespace penstock::cli {

// Of --strategies, where somebody proposes them.
inline constexpr char kProposedStrategies[] = "auto";

// What each strategy says of its own.
const std::vector<const char*>& MeshFlags();

// --strategies. `text` must outlive the parse. `more`: what else it may be here.
void AddStrategiesFlag(CLI::App& command, std::string& text, const std::string& more = "");

// Of a file, if there is one of this name, or of the text itself. Possible errors: INVALID_ARGUMENT (names
// the strategy and the word), NOT_FOUND (neither a file nor a strategy), UNAVAILABLE.
absl::StatusOr<std::vector<v1::Strategy>> ReadStrategies(const std::string& file_or_text);

// "pp 2 x dp 4", with stages where it has some of its own: what ReadStrategies reads.
std::string StrategyName(const v1::Strategy& strategy);
// Of all, with semicolons.
std::string StrategyNames(absl::Span<const v1::Strategy> strategies);

// The mesh of the job becomes that of the first.
void SetStrategies(const std::vector<v1::Strategy>& strategies, v1::JobSpec* job);

}  // namespace penstock::cli
