// The page of html_timeline.h without its data; made from planner/cli/html when the build is configured.
#pragma once

#include "absl/strings/string_view.h"

namespace penstock::cli {

extern const absl::string_view kTimelinePage;

}  // namespace penstock::cli
