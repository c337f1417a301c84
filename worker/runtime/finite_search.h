// Finds the pass that made the first number that is not finite. An iteration is run as ever and looked at
// only when its loss or the norm of its gradients is not finite; then it is run again, with the same numbers,
// and this object looks at what goes into every pass and comes out of it.
//
// A rank that got such a number from another one is not to blame: what counts is a pass of which all inputs
// are finite, of all ranks of the stage group, and an output is not. Inside a pass such a number goes from
// rank to rank: the first of the group that has one is named.
//
//   FiniteSearch search(stages);
//   ... an Iteration that is given it ...
//   PENSTOCK_ASSIGN_OR_RETURN(std::string where, search.Conclude(rank, world, communicator));
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/model/stage.h"
#include "worker/model/stage_group.h"
#include "worker/optimizer/sharding.h"
#include "worker/runtime/buffer_map.h"

namespace penstock::worker {

// In the order in which findings explain each other: the first one is shown.
enum class NotFinite : uint8_t { kParameter, kOutput, kLoss, kInputGradient, kGradient, kSum, kShare };

struct Finding {
  NotFinite what = NotFinite::kParameter;
  uint32_t rank = 0;
  uint32_t stage = 0;
  // Not of kParameter, kSum and kShare, which is of no stage either.
  uint32_t micro_batch = 0;

  auto operator<=>(const Finding&) const = default;
};

// "rank 3: the output of micro-batch 2 on stage 1".
std::string Describe(const Finding& finding);

// Of one rank. Not thread-safe. Tensors that are undefined count as finite. Possible errors of all methods:
// those of RunTorch.
class FiniteSearch {
 public:
  // The stages of this rank, and with whom their passes exchange; both must outlive this object.
  explicit FiniteSearch(const std::map<uint32_t, Stage*>& stages, StageGroup& group = SoleRank())
      : stages_(stages), group_(group) {}

  // Before the first pass.
  absl::Status LookAtParameters();
  // `output` is the loss on the last stage.
  absl::Status AfterForward(const BufferKey& key, const at::Tensor& input, const at::Tensor& output,
                            bool last);
  // Any of the three kinds; tensors that a kind does not have are undefined.
  absl::Status AfterBackward(const BufferKey& key, const at::Tensor& output_gradient,
                             const at::Tensor& input_gradient);
  // Of the gradients over the replicas: of what is updated here, as only that is the sum.
  absl::Status AfterSum(uint32_t stage, const Shardings& shardings);

  // Of the gradients of all ranks' stages, in the share of this rank.
  absl::Status AfterReshard(const FlatParameters& share);

  // What this rank has found; its `rank` is not set.
  const std::optional<Finding>& found() const { return found_; }

  // Exchanges what all ranks have found, and describes it: the same on all of them. `world` is a group of the
  // communicator. Possible errors, also: those of AllReduceSum.
  absl::StatusOr<std::string> Conclude(uint32_t rank, const std::vector<uint32_t>& world,
                                       Communicator& communicator, at::Device device) const;

 private:
  // Whether any rank of the stage group says so. Throws what LibTorch throws.
  bool AnyInGroup(bool own);
  void Found(NotFinite what, const BufferKey& key, const std::string& name);

  const std::map<uint32_t, Stage*>& stages_;
  StageGroup& group_;
  std::optional<Finding> found_;
  // Micro-batches that have carried such a number on this rank.
  std::set<uint32_t> tainted_;
  // Stages whose gradients hold one.
  std::set<uint32_t> spoilt_;
};

}  // namespace penstock::worker
