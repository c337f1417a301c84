#include "common/process/open_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace penstock {
namespace {

TEST(OpenFilesTest, TheLimitIsRaisedToWhatTheSystemAllows) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t most = limit.rlim_max;
  limit.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  AllowManyOpenFiles();
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, most);
}

}  // namespace
}  // namespace penstock
