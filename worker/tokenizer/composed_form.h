// Unicode's normal forms C and KC as Hugging Face's library makes it.
#pragma once

#include <string>

namespace penstock::worker {

// UTF-8 in; what is none stays as it is. That library has the tables of Unicode 9: marks that are newer are
// letters to it, which stay where they are.
std::string ToNfc(const std::string& text);
std::string ToNfkc(const std::string& text);

}  // namespace penstock::worker
