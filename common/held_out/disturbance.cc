#include "common/held_out/disturbance.h"

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

constexpr absl::string_view kDisturbed = "; disturbed: ";

}  // namespace

std::string WithDisturbance(absl::string_view comment, absl::string_view disturbance) {
  return disturbance.empty() ? std::string(comment) : absl::StrCat(comment, kDisturbed, disturbance);
}

std::string DisturbanceOf(absl::string_view comment) {
  const size_t at = comment.find(kDisturbed);
  return at == absl::string_view::npos ? "" : std::string(comment.substr(at + kDisturbed.size()));
}

}  // namespace penstock
