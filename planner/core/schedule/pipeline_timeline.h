// The exact timeline of a pipeline, as a sequence of events in one order for all its ranks.
//
// Each rank runs its passes in the order of its list; a pass starts when the one before it has ended and its
// data is there. A tensor that crosses from one rank to another takes the link of each of its ends, as the
// streams of the contract do: STREAM_NEXT on the rank of the lower stage, STREAM_PREVIOUS on that of the
// upper one. Both directions share them, first come, first served; a transfer that waits for one of its links
// only holds up none that needs the other. With one stage a rank, or stages dealt in turn to three ranks or
// more, that is one link between two ranks.
//
// The sequence of events is the one order that all programs of the replica are cut from
// (planner/core/comm).
//
//   PipelineTimeline timeline;
//   if (!timeline.Run(costs, passes)) { ... timeline.blocked_rank() ... }
//   for (const PipelineEvent& event : timeline.events()) { ... }
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/core/parallel/stop.h"
#include "planner/core/schedule/pipeline.h"

namespace penstock::core {

enum class EventKind : uint8_t { kPassStart, kPassEnd, kTransferStart, kTransferEnd };

struct PipelineEvent {
  EventKind kind = EventKind::kPassStart;
  // Of a pass.
  PassKind pass = PassKind::kForward;
  // Of a transfer: it brings a gradient back, not an activation onwards.
  bool gradient = false;
  // Of the pass. Of the transfer: the stage before the boundary, so that it joins `stage` and `stage + 1`.
  int32_t stage = 0;
  int32_t micro_batch = 0;
  int64_t time_ns = 0;
};

// Keeps its arrays between runs.
class PipelineTimeline {
 public:
  // False when it is stopped, or the lists cannot be run: their passes wait for each other in a circle, one
  // is listed twice, on another rank than its stage is, or without the pass before it. Then events() ends
  // where all ranks stand. Stages and micro-batches must be within those of `costs`.
  bool Run(const PipelineCosts& costs, const RankPasses& passes, StopToken stop = {});

  // In the order of time; causes before effects.
  const std::vector<PipelineEvent>& events() const { return events_; }
  // Time of the last event.
  int64_t makespan_ns() const { return events_.empty() ? 0 : events_.back().time_ns; }

  // After a run that was blocked: the first rank that has not reached its end, and the pass at which it
  // stands.
  int blocked_rank() const { return blocked_rank_; }
  const Pass& blocked_pass() const { return ranks_[blocked_rank_].pass; }

 private:
  struct RankState {
    // Positions in the list of passes.
    int32_t next = 0;
    int32_t end = 0;
    bool busy = false;
    // The one that runs, or is next.
    Pass pass;
  };
  // The way from a stage to the next one, when they are on different ranks.
  struct Boundary {
    int32_t lower_rank = 0;
    int32_t upper_rank = 0;
    bool crosses = false;
    // Its requests are requests_[head .. tail); the one under way is just before the head.
    int32_t head = 0;
    int32_t tail = 0;
  };
  struct Request {
    // Counts all requests.
    int32_t number = 0;
    int32_t micro_batch = 0;
    bool gradient = false;
  };
  // End of a pass (actor: the rank) or of a transfer (actor: ranks + boundary).
  struct End {
    int64_t time_ns = 0;
    int32_t actor = 0;
  };
  // The heaps of the standard library keep the largest on top.
  struct Later {
    bool operator()(const End& a, const End& b) const {
      return a.time_ns != b.time_ns ? a.time_ns > b.time_ns : a.actor > b.actor;
    }
  };

  void Reset();
  void PushEnd(int64_t time_ns, int32_t actor);
  End PopEnd();
  bool CanStart(int rank, const Pass& pass) const;
  // Of passes that are forward only: whether there is room above for what a FORWARD makes.
  bool HasRoomAbove(const Pass& forward) const;
  void StartPass(int rank, int64_t now_ns);
  void EndPass(int rank, int64_t now_ns);
  // What the pass made is there, or asks for its way there.
  void Deliver(int boundary, int32_t micro_batch, bool gradient, int64_t now_ns);
  void Arrive(int boundary, int32_t micro_batch, bool gradient);
  bool CanStartTransfer(int boundary) const;
  void StartTransfer(int boundary, int64_t now_ns);
  void EndTransfer(int boundary, int64_t now_ns);
  // Starts the transfers, oldest request first, that may now take the links of this boundary.
  void StartWaiting(int boundary, int64_t now_ns);

  // Of the run.
  const PipelineCosts* costs_ = nullptr;
  const RankPasses* passes_ = nullptr;
  int blocked_rank_ = -1;
  int32_t request_count_ = 0;

  std::vector<PipelineEvent> events_;
  std::vector<RankState> ranks_;
  std::vector<Boundary> boundaries_;
  std::vector<Request> requests_;
  // Of each rank, whether a transfer is under way.
  std::vector<uint8_t> next_link_busy_;
  std::vector<uint8_t> previous_link_busy_;
  // What has come true of each micro-batch on each stage: bits, [micro_batch * stages + stage].
  std::vector<uint8_t> reached_;
  // The stages of rank r are stages_[stages_begin_[r] .. stages_begin_[r + 1]).
  std::vector<int32_t> stages_begin_;
  std::vector<int32_t> stages_;
  // A heap, the next end on top: the earliest, then the lowest actor.
  std::vector<End> ends_;
};

}  // namespace penstock::core
