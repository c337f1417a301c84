#include "tests/support/message_mutator.h"

#include <google/protobuf/descriptor.h>

#include <iterator>
#include <limits>
#include <string>

namespace penstock {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMostElements = 4096;

}  // namespace

void MessageMutator::Apply(Message& message) {
  const auto* descriptor = message.GetDescriptor();
  if (descriptor->field_count() == 0) return;
  const FieldDescriptor* field = descriptor->field(static_cast<int>(Below(descriptor->field_count())));
  if (field->is_repeated()) return ApplyRepeated(message, field);
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return SetScalar(message, field);
  const Reflection* reflection = message.GetReflection();
  if (Below(20) == 0) return reflection->ClearField(&message, field);
  Apply(*reflection->MutableMessage(&message, field));
}

void MessageMutator::ApplyRepeated(Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  const int size = reflection->FieldSize(message, field);
  const bool messages = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (size < kMostElements && Below(size == 0 ? 2 : 20) == 0) {
    if (!messages) return SetElement(message, field, size);
    Message* added = reflection->AddMessage(&message, field);
    if (size > 0) added->CopyFrom(reflection->GetRepeatedMessage(message, field, 0));
    return Apply(*added);
  }
  if (size == 0) return;
  if (Below(20) == 0) return reflection->RemoveLast(&message, field);
  if (Below(20) == 0) return reflection->SwapElements(&message, field, 0, static_cast<int>(Below(size)));
  const int element = static_cast<int>(Below(size));
  if (messages) return Apply(*reflection->MutableRepeatedMessage(&message, field, element));
  SetElement(message, field, element);
}

// An element of a list of scalars; one behind the last is added.
void MessageMutator::SetElement(Message& message, const FieldDescriptor* field, int element) {
  const Reflection* reflection = message.GetReflection();
  const bool add = element == reflection->FieldSize(message, field);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      if (add) return reflection->AddUInt32(&message, field, static_cast<uint32_t>(Integer()));
      return reflection->SetRepeatedUInt32(&message, field, element, static_cast<uint32_t>(Integer()));
    case FieldDescriptor::CPPTYPE_UINT64:
      if (add) return reflection->AddUInt64(&message, field, Integer());
      return reflection->SetRepeatedUInt64(&message, field, element, Integer());
    case FieldDescriptor::CPPTYPE_INT64:
      if (add) return reflection->AddInt64(&message, field, static_cast<int64_t>(Integer()));
      return reflection->SetRepeatedInt64(&message, field, element, static_cast<int64_t>(Integer()));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (add) return reflection->AddDouble(&message, field, Number());
      return reflection->SetRepeatedDouble(&message, field, element, Number());
    case FieldDescriptor::CPPTYPE_STRING:
      if (add) return reflection->AddString(&message, field, Text(""));
      return reflection->SetRepeatedString(&message, field, element,
                                           Text(reflection->GetRepeatedString(message, field, element)));
    default:
      return;
  }
}

void MessageMutator::SetScalar(Message& message, const FieldDescriptor* field) {
  const Reflection* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->SetUInt32(&message, field, static_cast<uint32_t>(Integer()));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->SetUInt64(&message, field, Integer());
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(&message, field, static_cast<int32_t>(Integer()));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(&message, field, static_cast<int64_t>(Integer()));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->SetDouble(&message, field, Number());
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(&message, field, Below(2) == 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection->SetEnumValue(&message, field, static_cast<int>(Integer()));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->SetString(&message, field, Text(reflection->GetString(message, field)));
    default:
      return;
  }
}

uint64_t MessageMutator::Integer() {
  static constexpr uint64_t kValues[] = {
      0, 1, 2, 3, 7, 0x7fffffff, 0x80000000, 0xffffffff, uint64_t{1} << 62, ~uint64_t{0}};
  return Below(4) == 0 ? Below(1000) : kValues[Below(std::size(kValues))];
}

double MessageMutator::Number() {
  using Limits = std::numeric_limits<double>;
  static constexpr double kValues[] = {0,
                                       -0.0,
                                       1,
                                       -1,
                                       0.5,
                                       1e-300,
                                       1e-3,
                                       1e6,
                                       1e12,
                                       1e22,
                                       Limits::max(),
                                       Limits::infinity(),
                                       -Limits::infinity(),
                                       Limits::quiet_NaN()};
  return kValues[Below(std::size(kValues))];
}

// Also with control characters, and with bytes that are not UTF-8.
std::string MessageMutator::Text(const std::string& before) {
  switch (Below(5)) {
    case 0:
      return "";
    case 1:
      return before + before;
    case 2:
      return std::string(Below(1000), 'x');
    case 3:
      return before + static_cast<char>(Below(256));
    default: {
      std::string changed = before;
      if (!changed.empty()) changed[Below(changed.size())] = static_cast<char>(Below(256));
      return changed;
    }
  }
}

}  // namespace penstock
