// The files of the page: assets/, which the build puts into the program.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace penstock {

struct Asset {
  // "/page.css"
  absl::string_view path;
  absl::string_view content_type;
  absl::string_view text;
};

absl::Span<const Asset> Assets();

}  // namespace penstock
