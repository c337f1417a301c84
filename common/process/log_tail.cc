#include "common/process/log_tail.h"

#include <algorithm>
#include <fstream>

namespace penstock {

std::string LogTail(const std::string& path, size_t lines) {
  constexpr std::streamoff kMostBytes = 64 * 1024;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  std::string text(static_cast<size_t>(std::min(size, kMostBytes)), '\0');
  file.seekg(size - static_cast<std::streamoff>(text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));

  size_t begin = text.size();
  if (begin > 0 && text.back() == '\n') --begin;
  for (size_t found = 0; found < lines && begin != std::string::npos; ++found) {
    begin = begin == 0 ? std::string::npos : text.rfind('\n', begin - 1);
  }
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

}  // namespace penstock
