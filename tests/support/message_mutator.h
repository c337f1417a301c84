// Changes any message a little, by reflection: fields get extreme values or others of their kind, lists grow,
// shrink and change their order, messages come and go. The same seed makes the same changes.
//
//   MessageMutator mutator(seed);
//   for (int changes = 0; changes < 4; ++changes) mutator.Apply(request);
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <random>

namespace penstock {

class MessageMutator {
 public:
  explicit MessageMutator(uint32_t seed) : random_(seed) {}

  // Changes one field of `message` or, most often, of a message inside it.
  void Apply(google::protobuf::Message& message);

  // A number below `bound`.
  uint64_t Below(uint64_t bound) { return random_() % bound; }

 private:
  void ApplyRepeated(google::protobuf::Message& message, const google::protobuf::FieldDescriptor* field);
  void SetElement(google::protobuf::Message& message, const google::protobuf::FieldDescriptor* field,
                  int element);
  void SetScalar(google::protobuf::Message& message, const google::protobuf::FieldDescriptor* field);
  uint64_t Integer();
  double Number();
  std::string Text(const std::string& before);

  std::mt19937 random_;
};

}  // namespace penstock
