#include "common/process/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace penstock {
namespace {

// A number of bytes in a file of one line; 0: none, or "max".
size_t BytesIn(const std::string& path) {
  std::ifstream file(path);
  size_t bytes = 0;
  return file >> bytes ? bytes : 0;
}

size_t MachineBytes(const std::string& root) {
  std::ifstream info(root + "/proc/meminfo");
  std::string name;
  size_t kilobytes = 0;
  return info >> name >> kilobytes ? kilobytes << 10 : 0;
}

// "a/b/c", "a/b", "a", "": a group and those above it.
std::vector<std::string> WithParents(std::string group) {
  std::vector<std::string> groups;
  for (; !group.empty() && group != "/"; group.resize(group.rfind('/'))) {
    groups.push_back(group);
    if (group.rfind('/') == std::string::npos) break;
  }
  groups.emplace_back();
  return groups;
}

}  // namespace

size_t MemoryOfProcess(const std::string& root) {
  size_t least = MachineBytes(root);
  const auto limit = [&](const std::string& path) {
    const size_t bytes = BytesIn(root + path);
    if (bytes > 0) least = least == 0 ? bytes : std::min(least, bytes);
  };
  // Lines "0::/a/b" (version 2) and "9:memory:/a/b" (version 1).
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    for (const std::string& group : WithParents(line.substr(second + 1))) {
      if (controllers.empty()) limit("/sys/fs/cgroup" + group + "/memory.max");
      if (controllers == "memory") limit("/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes");
    }
  }
  return least;
}

}  // namespace penstock
