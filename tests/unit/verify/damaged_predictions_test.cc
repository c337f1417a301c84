// Rules 7 and 8, tokens and predictions: every kind of damage is found by the rule it breaks, with a message
// that names the place.
#include "tests/unit/verify/plan_sealing.h"
#include "tests/unit/verify/planted_damage.h"

namespace penstock::core {
namespace {

// Rule 7: tokens.

TEST_F(PlantedDamage, WrongRealTokens) {
  micro_batch(0, 1).set_real_tokens(1);
  ExpectViolation(7, "replica 0, micro-batch 1: real_tokens is 1");
}

TEST_F(PlantedDamage, WrongComputedTokens) {
  micro_batch(0, 1).set_computed_tokens(1);
  ExpectViolation(7, "replica 0, micro-batch 1: computed_tokens is 1");
}

TEST_F(PlantedDamage, WrongLossTokens) {
  micro_batch(0, 1).set_loss_tokens(micro_batch(0, 1).loss_tokens() + 1);
  ExpectViolation(7, "replica 0, micro-batch 1: loss_tokens is");
}

TEST_F(PlantedDamage, WrongLossTokensOfThePlan) {
  plan().set_loss_tokens(plan().loss_tokens() - 1);
  ExpectViolation(7, "the plan's loss_tokens is");
}

TEST_F(PlantedDamage, WrongLossWeight) {
  plan().set_loss_weight(1);
  ExpectViolation(7, "the plan's loss_weight is 1, its samples weigh 0");
}

TEST_F(PlantedDamage, WeightOfASampleThatThePlanDoesNotCount) {
  planned_.mutable_batch()->mutable_samples(0)->set_loss_weight(0.5);
  ExpectViolation(7, "the plan's loss_weight is 0");
}

TEST_F(PlantedDamage, WeightBelowZero) {
  planned_.mutable_batch()->mutable_samples(0)->set_loss_weight(-1);
  ExpectViolation(7, "batch.samples[0].loss_weight is -1");
}

TEST_F(PlantedDamageInPackedPlan, WrongCuSeqlens) {
  micro_batch(1, 1).set_target_cu_seqlens(1, 1);
  ExpectViolation(7, "replica 1, micro-batch 1: target_cu_seqlens");
}

TEST_F(PlantedDamage, SampleCut) {
  micro_batch(0, 1).set_target_length(micro_batch(0, 1).target_length() - 1);
  ExpectViolation(7, "cut sample");
}

TEST_F(PlantedDamage, WrongRows) {
  micro_batch(0, 1).set_rows(3);
  ExpectViolation(7, "replica 0, micro-batch 1: rows is 3");
}

TEST_F(PlantedDamageInConcatenatedPlan, RowTooShort) {
  micro_batch(0, 1).set_target_length(micro_batch(0, 1).target_length() - 1);
  ExpectViolation(7, "replica 0, micro-batch 1: row 0 has 0 and");
}

TEST_F(PlantedDamageInConcatenatedPlan, RowWithoutSamples) {
  micro_batch(0, 1).set_row_samples(1, 3);
  ExpectViolation(7, "replica 0, micro-batch 1: row 1 has no sample");
}

TEST_F(PlantedDamageInConcatenatedPlan, SampleInNoRow) {
  micro_batch(0, 1).set_row_samples(2, 2);
  ExpectViolation(7, "replica 0, micro-batch 1: row_samples are not");
}

TEST_F(PlantedDamageInPackedPlan, FieldsOfOtherLayouts) {
  v1::MicroBatch& damaged = micro_batch(1, 0);
  const std::string name = "replica 1, micro-batch 0: ";
  const std::string text = " is set, which its layout does not have";
  damaged.set_rows(1);
  damaged.set_source_length(1);
  damaged.set_target_length(9);
  damaged.add_row_samples(0);
  damaged.add_source_cu_seqlens(0);
  for (const char* field : {"rows", "source_length", "target_length", "row_samples", "source_cu_seqlens"})
    ExpectViolation(7, name + field + text);
}

TEST_F(PlantedDamage, FieldsOfOtherLayouts) {
  v1::MicroBatch& damaged = micro_batch(1, 0);
  const std::string name = "replica 1, micro-batch 0: ";
  damaged.add_row_samples(0);
  damaged.add_target_cu_seqlens(0);
  damaged.set_source_length(1);
  ExpectViolation(7, name + "row_samples is set, which its layout does not have");
  ExpectViolation(7, name + "target_cu_seqlens is set, which its layout does not have");
  ExpectViolation(7, name + "source_length is 1, a GPT has no source");
}

TEST_F(PlantedDamageInConcatenatedPlan, RowsThatAreNotListed) {
  micro_batch(0, 1).set_rows(3);
  ExpectViolation(7, "replica 0, micro-batch 1: row_samples are not");
  ExpectViolation(7, "computed_tokens");
}

TEST_F(PlantedDamageInConcatenatedPlan, RowsInDisorder) {
  micro_batch(0, 1).set_row_samples(1, 7);
  ExpectViolation(7, "replica 0, micro-batch 1: row_samples are not");
}

TEST_F(PlantedDamage, UnknownLayout) {
  micro_batch(0, 1).set_layout(v1::LAYOUT_UNSPECIFIED);
  ExpectViolation(7, "replica 0, micro-batch 1: its layout is 0");
}

// Rule 8: predictions.

TEST_F(PlantedDamage, NegativeDuration) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  forward.set_expected_duration_ns(-1);
  ExpectViolationAt(8, 0, forward, "expected_duration_ns -1: both must be between 0 and");
}

TEST_F(PlantedDamage, StartBeforeTheIteration) {
  v1::Instruction& load = Get(0, v1::OP_LOAD, 0);
  load.set_expected_start_ns(-5);
  ExpectViolationAt(8, 0, load, "expected_start_ns is -5");
}

TEST_F(PlantedDamage, StartBeforeAnEarlierInstructionOfTheStreamHasEnded) {
  v1::Instruction& forward = Get(0, v1::OP_FORWARD, 1);
  const int64_t start = forward.expected_start_ns();
  forward.set_expected_start_ns(start - 1);
  ExpectViolationAt(
      8, 0, forward,
      "expected_start_ns is " + std::to_string(start - 1) + ", expected " + std::to_string(start));
}

TEST_F(PlantedDamage, StartBeforeADepHasEnded) {
  v1::Instruction& send = Get(0, v1::OP_SEND, 0);
  const int64_t start = send.expected_start_ns();
  send.set_expected_start_ns(start - 1);
  Get(1, v1::OP_RECV, 0).set_expected_start_ns(start - 1);
  ExpectViolationAt(8, 0, send, ", expected " + std::to_string(start));
  ExpectViolationAt(8, 1, Get(1, v1::OP_RECV, 0), ", expected " + std::to_string(start));
}

TEST_F(PlantedDamage, StartLaterThanNeedBe) {
  v1::Instruction& step = Get(3, v1::OP_OPTIMIZER_STEP, 0);
  const int64_t start = step.expected_start_ns();
  step.set_expected_start_ns(start + 7);
  ExpectViolationAt(8, 3, step, ", expected " + std::to_string(start));
}

TEST_F(PlantedDamage, EndsOfATransferAtDifferentTimes) {
  v1::Instruction& recv = Get(1, v1::OP_RECV, 1);
  recv.set_expected_duration_ns(recv.expected_duration_ns() + 1);
  ExpectViolationAt(8, 1, recv, "expected_duration_ns is 31, expected 30");
}

TEST_F(PlantedDamage, ReductionThatTakesOneRankLonger) {
  v1::Instruction& reduce = Get(2, v1::OP_REDUCE_GRADIENTS, 0);
  reduce.set_expected_duration_ns(reduce.expected_duration_ns() + 1);
  ExpectViolationAt(8, 2, reduce, "expected_duration_ns is 51, expected 50");
}

TEST_F(PlantedDamage, WaitThatTakesTime) {
  v1::Instruction& wait = Get(0, v1::OP_WAIT, 1, 2);
  wait.set_expected_duration_ns(5);
  ExpectViolationAt(8, 0, wait, "expected_duration_ns is 5, expected 0");
}

TEST_F(PlantedDamage, WrongMakespan) {
  v1::Prediction& predicted = *plan().mutable_predicted();
  predicted.set_makespan_ns(predicted.makespan_ns() - 1);
  ExpectViolation(8, "predicted.makespan_ns is " + std::to_string(predicted.makespan_ns()) + ", expected " +
                         std::to_string(predicted.makespan_ns() + 1));
}

TEST_F(PlantedDamage, WrongLastBackward) {
  plan().mutable_predicted()->set_last_backward_ns(1);
  ExpectViolation(8, "predicted.last_backward_ns is 1, expected");
}

TEST_F(PlantedDamage, BoundAboveTheMakespan) {
  plan().set_lower_bound_ns(plan().predicted().makespan_ns() + 1);
  ExpectViolation(8, "which is not between 0 and the makespan");
  plan().set_lower_bound_ns(-1);
  ExpectViolation(8, "lower_bound_ns is -1");
}

TEST_F(PlantedDamage, PredictionOfARankMissing) {
  plan().mutable_predicted()->mutable_ranks()->RemoveLast();
  ExpectViolation(8, "predicted.ranks has 3 entries, the plan 4 ranks");
}

TEST_F(PlantedDamage, WrongPredictionOfARank) {
  using Field = void (v1::Bubble::*)(int64_t);
  const std::pair<const char*, Field> fields[] = {{"fill_ns", &v1::Bubble::set_fill_ns},
                                                  {"drain_ns", &v1::Bubble::set_drain_ns},
                                                  {"dependency_ns", &v1::Bubble::set_dependency_ns},
                                                  {"transfer_ns", &v1::Bubble::set_transfer_ns},
                                                  {"imbalance_ns", &v1::Bubble::set_imbalance_ns},
                                                  {"memory_ns", &v1::Bubble::set_memory_ns}};
  for (const auto& [name, set] : fields) {
    (plan().mutable_predicted()->mutable_ranks(2)->mutable_bubble()->*set)(987654321);
    ExpectViolation(8, std::string("rank 2: predicted ") + name + " is 987654321, expected");
  }
  plan().mutable_predicted()->mutable_ranks(2)->set_busy_ns(1);
  ExpectViolation(8, "rank 2: predicted busy_ns is 1, expected");
}

TEST_F(PlantedDamage, WrongPeak) {
  v1::RankPrediction& rank = *plan().mutable_predicted()->mutable_ranks(1);
  const int64_t peak = PeakOf(plan().programs(1));
  rank.set_peak_memory_bytes(peak - 1);
  ExpectViolation(8, "rank 1: predicted peak_memory_bytes is " + std::to_string(peak - 1) + ", expected " +
                         std::to_string(peak));
  rank.set_peak_instruction(rank.peak_instruction() + 1);
  ExpectViolation(8, "rank 1: predicted peak_instruction is");
}

// One wrong duration is found by the instructions that wait for it, and by nothing that follows from those.
TEST_F(PlantedDamage, WrongTimesAreNamedWhereTheyAre) {
  v1::Instruction& backward = Get(1, v1::OP_BACKWARD, 0);
  backward.set_expected_duration_ns(backward.expected_duration_ns() + 1);
  int wrong_starts = 0;
  for (const Violation& violation : CheckPlan(planned_.batch(), planned_.plan()))
    if (violation.rule == 8 && violation.message.find("expected_start_ns") != std::string::npos)
      ++wrong_starts;
  EXPECT_GT(wrong_starts, 0);
  EXPECT_LE(wrong_starts, 6);
}

}  // namespace
}  // namespace penstock::core
