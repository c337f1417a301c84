// However a plan is damaged, the checker answers; it never crashes. Run under the sanitizers, this is what
// shows it.
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "planner/core/verify/check_plan.h"
#include "tests/unit/verify/plan_fixture.h"

namespace penstock::core {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class Damage {
 public:
  explicit Damage(uint32_t seed) : random_(seed) {}

  // Changes one field of `message` or, most often, of a message inside it.
  void Apply(Message& message) {
    const auto* descriptor = message.GetDescriptor();
    if (descriptor->field_count() == 0) return;
    const FieldDescriptor* field = descriptor->field(static_cast<int>(Below(descriptor->field_count())));
    const Reflection* reflection = message.GetReflection();
    if (field->is_repeated()) return ApplyRepeated(message, *reflection, field);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (Below(20) == 0) return reflection->ClearField(&message, field);
      return Apply(*reflection->MutableMessage(&message, field));
    }
    SetScalar(message, *reflection, field);
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }

  uint64_t Value() {
    static constexpr uint64_t kValues[] = {
        0, 1, 2, 3, 7, 0x7fffffff, 0x80000000, 0xffffffff, uint64_t{1} << 62, ~uint64_t{0}};
    return kValues[Below(std::size(kValues))];
  }

  void ApplyRepeated(Message& message, const Reflection& reflection, const FieldDescriptor* field) {
    const int size = reflection.FieldSize(message, field);
    if (size == 0) return;
    if (Below(20) == 0) return reflection.RemoveLast(&message, field);
    if (Below(20) == 0) return reflection.SwapElements(&message, field, 0, static_cast<int>(Below(size)));
    const int element = static_cast<int>(Below(size));
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      return Apply(*reflection.MutableRepeatedMessage(&message, field, element));
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32)
      reflection.SetRepeatedUInt32(&message, field, element, static_cast<uint32_t>(Value()));
  }

  void SetScalar(Message& message, const Reflection& reflection, const FieldDescriptor* field) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection.SetUInt32(&message, field, static_cast<uint32_t>(Value()));
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection.SetUInt64(&message, field, Value());
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection.SetInt64(&message, field, static_cast<int64_t>(Value()));
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection.SetEnumValue(&message, field, static_cast<int>(Value()));
      default:
        return;
    }
  }

  std::mt19937 random_;
};

std::vector<FixtureOptions> Kinds() {
  return {{.pipeline = 2, .replicas = 2},
          {.pipeline = 4, .layout = v1::LAYOUT_PACKED, .architecture = v1::ARCHITECTURE_T5},
          {.pipeline = 2, .stages_per_rank = 2, .split_backward = true}};
}

TEST(DamagedPlans, AreJudgedWithoutACrash) {
  int rejected = 0;
  const int rounds = 600;
  for (const FixtureOptions& options : Kinds()) {
    const v1::PlannedBatch valid = MakeValidPlan(options);
    for (int seed = 0; seed < rounds; ++seed) {
      v1::PlannedBatch damaged = valid;
      Damage damage(seed);
      for (int changes = 0; changes <= seed % 8; ++changes) damage.Apply(*damaged.mutable_plan());
      rejected += CheckPlan(damaged.batch(), damaged.plan()).empty() ? 0 : 1;
    }
  }
  // Whatever a change hits is part of the content hash; but it may write what was there before.
  EXPECT_GT(rejected, 2 * rounds);
}

}  // namespace
}  // namespace penstock::core
