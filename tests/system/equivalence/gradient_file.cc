#include "tests/system/equivalence/gradient_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "common/files/files.h"

namespace penstock::testing {
namespace {

template <typename Element>
std::vector<double> Elements(const std::string& bytes) {
  std::vector<Element> elements(bytes.size() / sizeof(Element));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return {elements.begin(), elements.end()};
}

}  // namespace

NamedTensors ReadGradientFile(const std::string& path) {
  const absl::StatusOr<std::string> contents = ReadFile(path);
  EXPECT_TRUE(contents.ok()) << contents.status();
  if (!contents.ok()) return {};
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, contents->data(), sizeof(header_bytes));
  const size_t data = sizeof(header_bytes) + header_bytes;
  const auto header = nlohmann::json::parse(contents->substr(sizeof(header_bytes), header_bytes));
  NamedTensors gradients;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0];
    const size_t end = entry["data_offsets"][1];
    const std::string bytes = contents->substr(data + begin, end - begin);
    gradients[name] = {entry["shape"].get<std::vector<int64_t>>(),
                       entry["dtype"] == "F64" ? Elements<double>(bytes) : Elements<float>(bytes)};
  }
  return gradients;
}

}  // namespace penstock::testing
