// Reads the tokens of programs ahead of their execution, on a thread of its own, so that no LOAD waits for
// the dataset.
//
//   TokenReader reader(device, job.model);
//   reader.Begin(program);                                       // as soon as it is known
//   PENSTOCK_ASSIGN_OR_RETURN(TokenBatch tokens, reader.Take(*program, {stage, micro_batch}));
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "common/sync/task_thread.h"
#include "worker/device/device.h"
#include "worker/model/token_batch.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"
#include "worker/runtime/buffer_map.h"

namespace penstock::worker {

// Calls come from one thread.
class TokenReader {
 public:
  // `device` must outlive this object. `place`: of the rank in its stage group.
  TokenReader(Device* device, ModelConfig model, const GroupPlace& place = {});
  // Waits for the micro-batch that is being read, no longer.
  ~TokenReader();
  TokenReader(const TokenReader&) = delete;
  TokenReader& operator=(const TokenReader&) = delete;

  // Starts to read what the stages of the program's rank need, in the order in which they need it. Does
  // nothing where that has begun. Forgets programs of earlier iterations but the one before.
  void Begin(std::shared_ptr<const Program> program);

  // What a stage needs of a micro-batch, once: what was taken, or was not begun, is read now. Possible
  // errors: those of Device::ReadTokens.
  absl::StatusOr<TokenBatch> Take(const Program& program, const BufferKey& key);

 private:
  class Reading;
  // Iteration, and whether it is that's validation.
  using Key = std::pair<uint64_t, bool>;
  static Key KeyOf(const Program& program) { return {program.iteration, program.forward_only}; }

  absl::StatusOr<TokenBatch> Read(const Program& program, const BufferKey& key) const;

  Device& device_;
  const ModelConfig model_;
  const GroupPlace place_;
  std::map<Key, std::shared_ptr<Reading>> readings_;
  // Last, so that it ends before what it uses.
  TaskThread thread_{"token-reader"};
};

}  // namespace penstock::worker
