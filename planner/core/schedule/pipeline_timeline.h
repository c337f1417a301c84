// The exact timeline of a pipeline, as a sequence of events in one order for all its ranks.
//
// Transfers of both directions share a link, first come, first served: this is where the order of transfers
// is decided. The sequence of events is the one order that all programs of the replica are cut from
// (planner/core/comm).
#pragma once

#include <cstdint>
#include <vector>

#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

enum class EventKind : uint8_t { kPassStart, kPassEnd, kTransferStart, kTransferEnd };

struct PipelineEvent {
  EventKind kind = EventKind::kPassStart;
  // BACKWARD, or a gradient.
  bool backward = false;
  // Of the pass. Of the transfer: the stage before the link, so that the link joins `stage` and `stage + 1`.
  int32_t stage = 0;
  int32_t micro_batch = 0;
  int64_t time_ns = 0;
};

// All events, in the order of time; causes before effects. Linear search among stages for the next event:
// meant for tens of stages.
class PipelineTimeline {
 public:
  const std::vector<PipelineEvent>& Run(const PipelineCosts& costs, const PassOrder& order);
  // Time of the last event.
  int64_t makespan_ns() const { return events_.empty() ? 0 : events_.back().time_ns; }

 private:
  struct Running {
    bool active = false;
    bool backward = false;
    int32_t micro_batch = 0;
    int64_t end_ns = 0;
  };
  struct StageState {
    int32_t forwards = 0;
    int32_t backwards = 0;
    // Activations and gradients that have arrived.
    int32_t activations = 0;
    int32_t gradients = 0;
    Running pass;
    // The link to the next stage, and the transfers that wait for it from `queue_head` on.
    Running transfer;
    std::vector<Running> queue;
    size_t queue_head = 0;
  };

  void Emit(EventKind kind, const Running& running, int stage, int64_t time_ns);
  void StartPass(const PipelineCosts& costs, const PassOrder& order, int stage, int64_t now_ns);
  void StartTransfer(const PipelineCosts& costs, int stage, int64_t now_ns);
  void EndPass(const PipelineCosts& costs, int stage);
  void EndTransfer(int stage);

  std::vector<StageState> stages_;
  std::vector<PipelineEvent> events_;
};

}  // namespace penstock::core
