#include "planner/core/audit/audit_options.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace penstock::core {
namespace {

class OptionsAudit {
 public:
  OptionsAudit(const v1::Plan& plan, const Batch& batch, const Job& job, const CostModel& costs,
               AuditList* list)
      : plan_(plan), batch_(batch), job_(job), costs_(costs), list_(*list) {}

  void Run() {
    CheckSchedule();
    for (int replica = 0; replica < plan_.replicas_size(); ++replica) {
      for (int m = 0; m < plan_.replicas(replica).micro_batches_size(); ++m) {
        name_ = absl::StrCat("replica ", replica, ", micro-batch ", m, ": ");
        const v1::MicroBatch& micro_batch = plan_.replicas(replica).micro_batches(m);
        CheckLayout(micro_batch);
        CheckSize(micro_batch);
        CheckTokens(micro_batch);
        CheckParts(micro_batch);
        // Forward alone, nothing is computed again (rule 0).
        for (int stage = 0; stage < costs_.stages() && !plan_.forward_only(); ++stage)
          CheckRecompute(micro_batch, stage);
      }
    }
  }

 private:
  // Where a rank has several stages, INTERLEAVED stands for each family without a split backward pass.
  bool IsScheduleAllowed() const {
    if (job_.schedule == ScheduleFamily::kAuto) return true;
    switch (plan_.schedule()) {
      case v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD:
        return job_.schedule == ScheduleFamily::kOneForwardOneBackward;
      case v1::SCHEDULE_READY_FIRST:
        return job_.schedule != ScheduleFamily::kOneForwardOneBackward;
      case v1::SCHEDULE_SPLIT_BACKWARD:
        return job_.schedule == ScheduleFamily::kSplitBackward;
      default:
        return true;
    }
  }

  void CheckSchedule() {
    if (IsScheduleAllowed()) return;
    list_.Add(absl::StrCat("schedule is ", v1::Schedule_Name(plan_.schedule()), ", which options.schedule, ",
                           v1::Schedule_Name(plan_.options().schedule()), ", excludes"));
  }

  void CheckLayout(const v1::MicroBatch& micro_batch) {
    const v1::Layout layout = micro_batch.layout();
    bool allowed = layout != v1::LAYOUT_CONCATENATED;
    if (job_.policy == Policy::kPadding) allowed = layout == v1::LAYOUT_PADDED;
    if (job_.policy == Policy::kConcatenated) allowed = layout == v1::LAYOUT_CONCATENATED;
    if (job_.policy == Policy::kPacked || job_.policy == Policy::kTokenBudget)
      allowed = layout == v1::LAYOUT_PACKED;
    if (job_.policy == Policy::kDynamic && job_.layout == LayoutChoice::kPadded)
      allowed = layout == v1::LAYOUT_PADDED;
    if (job_.policy == Policy::kDynamic && job_.layout == LayoutChoice::kPacked)
      allowed = layout == v1::LAYOUT_PACKED;
    if (!allowed)
      list_.Add(absl::StrCat(name_, "its layout is ", v1::Layout_Name(layout), ", which options.policy, ",
                             v1::Policy_Name(plan_.options().policy()), ", does not make"));
  }

  // Samples, or rows.
  void CheckSize(const v1::MicroBatch& micro_batch) {
    const bool rows = job_.policy == Policy::kConcatenated;
    if (job_.micro_batch_size == 0 || (!rows && job_.policy != Policy::kPadding)) return;
    const int64_t size = rows ? int64_t{micro_batch.rows()} : micro_batch.samples_size();
    if (size > job_.micro_batch_size)
      list_.Add(absl::StrCat(name_, "it has ", size, rows ? " rows" : " samples",
                             ", options.micro_batch_size is ", job_.micro_batch_size));
  }

  void CheckTokens(const v1::MicroBatch& micro_batch) {
    if (job_.token_cap == 0) return;
    if (job_.policy == Policy::kConcatenated) return CheckRow(micro_batch);
    if (job_.policy != Policy::kPacked && job_.policy != Policy::kTokenBudget) return;
    if (micro_batch.samples_size() > 1 &&
        micro_batch.computed_tokens() > static_cast<uint64_t>(job_.token_cap))
      list_.Add(absl::StrCat(name_, "its ", micro_batch.samples_size(), " samples have ",
                             micro_batch.computed_tokens(), " tokens, options.token_cap is ",
                             job_.token_cap));
  }

  void CheckParts(const v1::MicroBatch& micro_batch) {
    const int parts = micro_batch.part_rows_size() - 1;
    if (parts > job_.most_parts)
      list_.Add(
          absl::StrCat(name_, "it is in ", parts, " parts, options.most_parts allows ", job_.most_parts));
  }

  // Rows are raised to the longest sample of the batch, of either side.
  void CheckRow(const v1::MicroBatch& micro_batch) {
    uint64_t source = 0, target = 0;
    for (const SampleTokens& sample : batch_.samples) {
      source = std::max<uint64_t>(source, sample.source);
      target = std::max<uint64_t>(target, sample.target);
    }
    const uint64_t most = std::max<uint64_t>(job_.token_cap, source + target);
    const uint64_t length = uint64_t{micro_batch.source_length()} + micro_batch.target_length();
    if (length > most)
      list_.Add(absl::StrCat(name_, "its rows have ", length, " tokens, options.token_cap is ",
                             job_.token_cap, " and the longest sample ", source + target));
  }

  void CheckRecompute(const v1::MicroBatch& micro_batch, int stage) {
    const v1::StageRecompute& found = micro_batch.recompute(stage);
    const auto layers = static_cast<uint32_t>(costs_.stage(stage).layers());
    const auto expect = [&](uint32_t selective, uint32_t full) {
      if (found.selective_layers() == selective && found.full_layers() == full) return;
      list_.Add(absl::StrCat(name_, "stage ", stage, " recomputes ", found.selective_layers(),
                             " layers selectively and ", found.full_layers(),
                             " in full, options.recompute asks for ", selective, " and ", full));
    };
    if (job_.recompute == RecomputeMode::kNone) expect(0, 0);
    if (job_.recompute == RecomputeMode::kSelective) expect(layers, 0);
    if (job_.recompute == RecomputeMode::kFull) expect(0, layers);
    if (found.selective_layers() > 0 && !costs_.has_selective())
      list_.Add(absl::StrCat(name_, "stage ", stage,
                             " recomputes selectively, for which the profile has no figures"));
  }

  const v1::Plan& plan_;
  const Batch& batch_;
  const Job& job_;
  const CostModel& costs_;
  AuditList& list_;
  // Of the micro-batch.
  std::string name_;
};

}  // namespace

void AuditOptions(const v1::Plan& plan, const Batch& batch, const Job& job, const CostModel& costs,
                  AuditList* list) {
  OptionsAudit(plan, batch, job, costs, list).Run();
}

}  // namespace penstock::core
