// A valid plan that a test damages in one place, and what the checker must say then.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "planner/core/verify/check_plan.h"
#include "tests/unit/verify/plan_edits.h"
#include "tests/unit/verify/plan_fixture.h"

namespace penstock::core {

class PlantedDamage : public testing::Test {
 protected:
  explicit PlantedDamage(const FixtureOptions& options = {}) : planned_(MakeValidPlan(options)) {}

  v1::Plan& plan() { return *planned_.mutable_plan(); }
  v1::MicroBatch& micro_batch(int replica, int m) {
    return *plan().mutable_replicas(replica)->mutable_micro_batches(m);
  }
  v1::Instruction& Get(int rank, v1::Op op, uint32_t m, uint32_t part = 0) {
    return Find(plan(), rank, op, m, part);
  }

  void ExpectViolation(int rule, const std::string& text) {
    EXPECT_THAT(
        CheckPlan(planned_.batch(), planned_.plan()),
        testing::Contains(testing::AllOf(testing::Field(&Violation::rule, rule),
                                         testing::Field(&Violation::message, testing::HasSubstr(text)))));
  }
  // The message names the rank and the instruction.
  void ExpectViolationAt(int rule, int rank, const v1::Instruction& instruction, const std::string& text) {
    const std::string place =
        "rank " + std::to_string(rank) + ", instruction " + std::to_string(instruction.id()) + " (";
    EXPECT_THAT(CheckPlan(planned_.batch(), planned_.plan()),
                testing::Contains(testing::AllOf(
                    testing::Field(&Violation::rule, rule), testing::Field(&Violation::rank, rank),
                    testing::Field(&Violation::instruction, instruction.id()),
                    testing::Field(&Violation::message,
                                   testing::AllOf(testing::HasSubstr(place), testing::HasSubstr(text))))));
  }

  v1::PlannedBatch planned_;
};

class PlantedDamageInPackedPlan : public PlantedDamage {
 protected:
  PlantedDamageInPackedPlan() : PlantedDamage({.layout = v1::LAYOUT_PACKED}) {}
};

// Two samples in the first row, one in the second.
class PlantedDamageInConcatenatedPlan : public PlantedDamage {
 protected:
  PlantedDamageInConcatenatedPlan()
      : PlantedDamage({.samples_per_micro_batch = 3, .layout = v1::LAYOUT_CONCATENATED}) {}
};

class PlantedDamageInSplitBackward : public PlantedDamage {
 protected:
  PlantedDamageInSplitBackward() : PlantedDamage({.split_backward = true}) {}
};

class PlantedDamageInEncoderDecoder : public PlantedDamage {
 protected:
  PlantedDamageInEncoderDecoder() : PlantedDamage({.pipeline = 4, .architecture = v1::ARCHITECTURE_T5}) {}
};

class PlantedDamageInSharedRanks : public PlantedDamage {
 protected:
  PlantedDamageInSharedRanks() : PlantedDamage({.pipeline = 1, .replicas = 2, .stages_per_rank = 2}) {}
};

}  // namespace penstock::core
