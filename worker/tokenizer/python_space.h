// What Python's str.strip() takes away.
#pragma once

#include <string>

namespace penstock::worker {

// UTF-8 in and out.
std::string StripLeft(const std::string& text);
std::string StripRight(const std::string& text);

}  // namespace penstock::worker
