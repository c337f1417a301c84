// Rules 2 and 5: a simulation in which nothing is buffered. If it ends, no runtime can deadlock.
#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// Ends of an iteration, and passes of a stage group of several ranks.
bool IsCollective(const v1::Instruction& instruction) {
  return instruction.has_collective() && !IsTransfer(instruction.op());
}

// Ranks of a replica step together, each on a stage of its own.
uint32_t StageOf(const v1::Instruction& collective) {
  const bool each_of_its_own = collective.op() == v1::OP_OPTIMIZER_STEP || collective.op() == v1::OP_RESHARD;
  return each_of_its_own ? 0 : collective.stage();
}

constexpr int kMostReported = 1000;

class Rendezvous {
 public:
  explicit Rendezvous(const PlanIndex& index)
      : index_(index), heads_(index.ranks(), 0), arrived_(index.ranks(), -1) {
    for (int rank = 0; rank < index.ranks(); ++rank) runnable_.push_back(rank);
    for (const v1::CollectiveGroup& group : index.plan().groups()) {
      std::vector<uint32_t>& members = members_.emplace_back(group.ranks().begin(), group.ranks().end());
      std::sort(members.begin(), members.end());
    }
  }

  void Run() {
    while (!runnable_.empty() && !index_.stopped()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      Advance(rank);
    }
  }

  void ReportStuck(Report& report) const {
    for (int rank = 0; rank < index_.ranks(); ++rank) {
      const v1::Instruction* head = Head(rank);
      if (head == nullptr) continue;
      // Those that are listed are enough.
      if (report.count(kTransfers) + report.count(kCollectives) > kMostReported) return;
      for (int partner : Partners(rank, *head)) {
        if (partner >= 0 && IsReadyFor(rank, *head, partner)) continue;
        report.AddAt(WaitsForTransfer(*head, partner) ? kTransfers : kCollectives, rank, *head,
                     absl::StrCat("deadlock: it waits for ", NameOfPosition(partner)));
      }
    }
  }

 private:
  const v1::Instruction* Head(int rank) const {
    const v1::Program& program = index_.program(rank);
    return heads_[rank] < program.instructions_size() ? &program.instructions(heads_[rank]) : nullptr;
  }

  // Whether a transfer, not a collective, is to blame.
  bool WaitsForTransfer(const v1::Instruction& mine, int partner) const {
    const v1::Instruction* theirs = partner < 0 ? nullptr : Head(partner);
    return IsTransfer(mine.op()) || (theirs != nullptr && IsTransfer(theirs->op()));
  }

  std::string NameOfPosition(int rank) const {
    if (rank < 0) return "a rank that does not exist";
    const v1::Instruction* head = Head(rank);
    if (head == nullptr) return absl::StrCat("rank ", rank, ", which has ended");
    return absl::StrCat("rank ", rank, ", which is at ", Describe(*head));
  }

  // The other rank of a transfer; -1 when it does not exist.
  int Peer(const v1::Instruction& transfer) const {
    const uint32_t peer = transfer.transfer().peer();
    return peer < static_cast<uint32_t>(index_.ranks()) ? static_cast<int>(peer) : -1;
  }

  // The ranks that must be at the same transfer or collective; -1 for one that does not exist.
  std::vector<int> Partners(int rank, const v1::Instruction& instruction) const {
    if (IsTransfer(instruction.op())) return {Peer(instruction)};
    std::vector<int> partners;
    const uint32_t group = instruction.collective().group();
    if (group >= static_cast<uint32_t>(index_.plan().groups_size())) return {-1};
    for (uint32_t member : index_.plan().groups(static_cast<int>(group)).ranks()) {
      if (member >= static_cast<uint32_t>(index_.ranks()))
        partners.push_back(-1);
      else if (static_cast<int>(member) != rank)
        partners.push_back(static_cast<int>(member));
    }
    return partners;
  }

  // Whether `partner` stands at the other side of what `rank` stands at.
  bool IsReadyFor(int rank, const v1::Instruction& mine, int partner) const {
    const v1::Instruction* theirs = Head(partner);
    if (theirs == nullptr) return false;
    if (IsCollective(mine))
      return theirs->op() == mine.op() && StageOf(*theirs) == StageOf(mine) &&
             theirs->micro_batch() == mine.micro_batch() &&
             theirs->collective().group() == mine.collective().group() &&
             theirs->collective().sequence() == mine.collective().sequence();
    const bool opposite =
        mine.op() == v1::OP_SEND ? theirs->op() == v1::OP_RECV : theirs->op() == v1::OP_SEND;
    return opposite && theirs->transfer().peer() == static_cast<uint32_t>(rank) &&
           theirs->part() == mine.part() && theirs->micro_batch() == mine.micro_batch() &&
           theirs->transfer().sequence() == mine.transfer().sequence();
  }

  // Runs `rank` until it has to wait.
  void Advance(int rank) {
    for (const v1::Instruction* head = Head(rank); head != nullptr; head = Head(rank)) {
      if (IsTransfer(head->op())) {
        const int peer = Peer(*head);
        if (peer < 0 || !IsReadyFor(rank, *head, peer)) return;
        ++heads_[peer];
        runnable_.push_back(peer);
      } else if (IsCollective(*head)) {
        if (!Meet(rank, *head)) return;
        continue;
      }
      ++heads_[rank];
    }
  }

  // `rank` has come to a collective. When it is the last of the group, all go on; groups are those of the
  // topology (rule 0). A rank comes once to each place of its list, so that all of this takes time linear in
  // the plan.
  bool Meet(int rank, const v1::Instruction& collective) {
    const uint32_t group = collective.collective().group();
    if (group >= members_.size()) return false;
    const std::vector<uint32_t>& members = members_[group];
    if (!std::binary_search(members.begin(), members.end(), static_cast<uint32_t>(rank))) return false;
    if (arrived_[rank] == heads_[rank]) return false;
    arrived_[rank] = heads_[rank];
    std::vector<int>& here = meetings_[{group, collective.collective().sequence(), collective.op(),
                                        StageOf(collective), collective.micro_batch()}];
    here.push_back(rank);
    if (here.size() < members.size()) return false;
    for (const int member : here) {
      ++heads_[member];
      if (member != rank) runnable_.push_back(member);
    }
    here.clear();
    return true;
  }

  const PlanIndex& index_;
  std::vector<int> heads_;
  std::vector<int> runnable_;
  // Of each rank: the place at which it has come to a collective, or -1.
  std::vector<int> arrived_;
  // Of each group, ascending.
  std::vector<std::vector<uint32_t>> members_;
  // Ranks that stand at a collective, by group, sequence, op, stage and micro-batch.
  std::map<std::tuple<uint32_t, uint32_t, int, uint32_t, uint32_t>, std::vector<int>> meetings_;
};

}  // namespace

void CheckRendezvous(const PlanIndex& index, Report& report) {
  Rendezvous rendezvous(index);
  rendezvous.Run();
  if (index.stopped()) return;
  rendezvous.ReportStuck(report);
}

}  // namespace penstock::core::verify
