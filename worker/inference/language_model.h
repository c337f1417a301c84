// A whole model on one device that is run forward alone: without gradients and without an optimizer.
//
//   PENSTOCK_ASSIGN_OR_RETURN(const LanguageModel model, LanguageModel::Load(config, {checkpoint},
//   at::kCPU)); const at::Tensor hidden = model.Decode(tokens, model.Encode(tokens)); const at::Tensor logits
//   = model.Logits(hidden.narrow(0, last, 1));
//
// Encode, Decode and Logits throw what LibTorch throws: callers are inside CallTorch (worker/torch).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/stage_parts.h"
#include "worker/model/token_batch.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Folders of checkpoints, whatever meshes wrote them.
struct TrainedModel {
  // What was trained: the model, or its adapters.
  std::string checkpoint;
  // Of a model with adapters: all else.
  std::string base = {};
};

class LanguageModel {
 public:
  // Possible errors: INVALID_ARGUMENT (a base without adapters, or the other way round), those of
  // CheckModelConfig and ReadInitialValues, RESOURCE_EXHAUSTED (memory).
  static absl::StatusOr<std::unique_ptr<LanguageModel>> Load(const ModelConfig& config,
                                                             const TrainedModel& trained, at::Device device);

  const ModelConfig& config() const { return config_; }
  const StageParts& parts() const { return parts_; }
  at::Device device() const { return device_; }

  // All that it needs of samples.
  static TokenNeeds Needs(const ModelConfig& config);

  // T5: what its encoder makes of the inputs, [source tokens, hidden]. Undefined for a GPT.
  at::Tensor Encode(const TokenBatch& tokens) const;
  // What the head reads at each token of the target, [target tokens, hidden]. `source`: of Encode.
  at::Tensor Decode(const TokenBatch& tokens, const at::Tensor& source) const;
  // The same of what the last layer made: final norm, and the scale of a tied head.
  at::Tensor Finish(const at::Tensor& hidden) const;
  // [rows, vocab], at least float32, of rows that Decode or Finish made.
  at::Tensor Logits(const at::Tensor& rows) const;

 private:
  LanguageModel(const ModelConfig& config, at::Device device) : config_(config), device_(device) {}

  void MakeParameters();

  const ModelConfig config_;
  const at::Device device_;
  // All but the adapters', and these.
  std::vector<NamedParameter> parameters_;
  std::vector<NamedParameter> adapters_;
  StageParts parts_;
};

}  // namespace penstock::worker
