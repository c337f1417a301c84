#include "planner/cli/text_table.h"

#include <gtest/gtest.h>

namespace penstock::cli {
namespace {

TEST(TextTable, AlignsColumns) {
  TextTable table({"policy", "ms"});
  table.AddRow({"x", "12345"});
  EXPECT_EQ(table.ToString(), "policy     ms\nx       12345\n");
}

TEST(TextTable, ShowsRatiosAsPercent) {
  EXPECT_EQ(Percent(0.1234), "12.3%");
  EXPECT_EQ(Fixed(2.55555, 2), "2.56");
}

}  // namespace
}  // namespace penstock::cli
