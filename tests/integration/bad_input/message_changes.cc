#include "tests/integration/bad_input/message_changes.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// A field of a message within the one that is changed.
struct Place {
  Message* parent = nullptr;
  const FieldDescriptor* field = nullptr;
  // Of a repeated field.
  std::optional<int> element;
};

// "samples[3]" of `parent`.
absl::StatusOr<Place> Find(Message* parent, absl::string_view part) {
  const std::vector<std::string> name = absl::StrSplit(part, absl::ByAnyChar("[]"));
  Place place{parent, parent->GetDescriptor()->FindFieldByName(name[0]), std::nullopt};
  if (place.field == nullptr) return absl::InvalidArgumentError(absl::StrCat("no field '", part, "'"));
  if (name.size() == 1) return place;
  int element = 0;
  const bool number = absl::SimpleAtoi(name[1], &element);
  if (!number || element >= parent->GetReflection()->FieldSize(*parent, place.field))
    return absl::InvalidArgumentError(absl::StrCat("no element '", part, "'"));
  place.element = element;
  return place;
}

absl::StatusOr<Place> Resolve(Message* message, absl::string_view path) {
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const Place place, Find(message, parts[i]));
    const auto* reflection = message->GetReflection();
    message = place.element.has_value()
                  ? reflection->MutableRepeatedMessage(message, place.field, *place.element)
                  : reflection->MutableMessage(message, place.field);
  }
  return Find(message, parts.back());
}

absl::Status Set(const Place& place, absl::string_view value) {
  // In text format a value has its field's name, and the element of a list its message's fields.
  const auto* reflection = place.parent->GetReflection();
  Message* message = place.parent;
  std::string text = absl::StrCat(place.field->name(), ": ", value);
  if (place.element.has_value()) {
    message = reflection->MutableRepeatedMessage(place.parent, place.field, *place.element);
    message->Clear();
    if (absl::ConsumePrefix(&value, "{")) absl::ConsumeSuffix(&value, "}");
    text = std::string(value);
  } else {
    reflection->ClearField(place.parent, place.field);
  }
  if (google::protobuf::TextFormat::MergeFromString(text, message)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("not a value of the field: ", text));
}

absl::Status Repeat(const Place& place, int times) {
  const auto* reflection = place.parent->GetReflection();
  if (place.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && !place.field->is_repeated()) {
    const std::string once = reflection->GetString(*place.parent, place.field);
    std::string all;
    for (int i = 0; i < times; ++i) all += once;
    reflection->SetString(place.parent, place.field, all);
    return absl::OkStatus();
  }
  if (!place.element.has_value()) return absl::InvalidArgumentError("only strings and elements are repeated");
  const std::unique_ptr<Message> once(
      reflection->GetRepeatedMessage(*place.parent, place.field, *place.element).New());
  once->CopyFrom(reflection->GetRepeatedMessage(*place.parent, place.field, *place.element));
  for (int i = 1; i < times; ++i) reflection->AddMessage(place.parent, place.field)->CopyFrom(*once);
  return absl::OkStatus();
}

absl::Status ApplyOne(absl::string_view change, Message* message) {
  if (absl::ConsumePrefix(&change, "!")) {
    PENSTOCK_ASSIGN_OR_RETURN(const Place place, Resolve(message, change));
    place.parent->GetReflection()->ClearField(place.parent, place.field);
    return absl::OkStatus();
  }
  for (const absl::string_view sign : {" = ", " * "}) {
    const std::vector<std::string> sides = absl::StrSplit(change, absl::MaxSplits(sign, 1));
    if (sides.size() != 2) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const Place place, Resolve(message, sides[0]));
    if (sign == " = ") return Set(place, sides[1]);
    int times = 0;
    if (absl::SimpleAtoi(sides[1], &times)) return Repeat(place, times);
  }
  return absl::InvalidArgumentError("not understood");
}

}  // namespace

absl::Status ApplyChanges(absl::string_view changes, Message* message) {
  for (absl::string_view change : absl::StrSplit(changes, ';', absl::SkipWhitespace())) {
    change = absl::StripAsciiWhitespace(change);
    const absl::Status status = ApplyOne(change, message);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("'", change, "': ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace penstock
