#include "common/process/leave_process.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "common/process/sanitized.h"

namespace penstock {

void LeaveProcess(int status) {
  if (kSanitized) std::exit(status);
  std::cout.flush();
  std::fflush(nullptr);
  std::quick_exit(status);
}

}  // namespace penstock
