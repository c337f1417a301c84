// `penstock-worker generate` and `penstock-worker evaluate`.
#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "worker/runtime/worker_options.h"

namespace penstock::worker {

// Writes each token as soon as it is there, and a line on stderr when it is done. Possible errors: those of
// ReadModelSpec, LanguageModel::Load, StartDecoder and MakeGeneratedText, INVALID_ARGUMENT (names --device).
absl::Status RunGenerate(const GenerateOptions& options, std::ostream& out);

// Possible errors: those of ReadModelSpec, LanguageModel::Load, IndexedDataset::Open and Evaluate,
// INVALID_ARGUMENT (names --device, --dataset, --max-length).
absl::Status RunEvaluate(const EvaluateOptions& options, std::ostream& out);

}  // namespace penstock::worker
