#include "common/net/host_name.h"

#include <unistd.h>

#include <climits>

namespace penstock {

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, HOST_NAME_MAX) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace penstock
