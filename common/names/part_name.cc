#include "common/names/part_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace penstock {

std::string PartName(v1::ModelPart part) {
  if (!v1::ModelPart_IsValid(part)) return absl::StrCat("part_", static_cast<int>(part));
  return absl::AsciiStrToLower(absl::StripPrefix(v1::ModelPart_Name(part), "MODEL_PART_"));
}

}  // namespace penstock
