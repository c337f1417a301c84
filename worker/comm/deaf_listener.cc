#include "worker/comm/deaf_listener.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/sync/sync.h"

namespace penstock::worker {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

bool Listens(int descriptor) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  return getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

// Descriptors by the inode of the socket: a number may be another socket's by now.
std::map<ino_t, int> ListeningSockets() {
  std::map<ino_t, int> sockets;
  const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc/self/fd"));
  if (folder == nullptr) return sockets;
  while (const dirent* entry = readdir(folder.get())) {
    int descriptor = -1;
    struct stat status = {};
    if (absl::SimpleAtoi(entry->d_name, &descriptor) && Listens(descriptor) &&
        fstat(descriptor, &status) == 0) {
      sockets[status.st_ino] = descriptor;
    }
  }
  return sockets;
}

Mutex& Turn() {
  static auto& turn = *new Mutex;
  return turn;
}

}  // namespace

std::vector<FileDescriptor> ListenersOpenedBy(const std::function<void()>& open) {
  MutexLock lock(&Turn());
  const std::map<ino_t, int> before = ListeningSockets();
  open();
  std::vector<FileDescriptor> opened;
  for (const auto& [inode, descriptor] : ListeningSockets()) {
    if (!before.contains(inode)) opened.emplace_back(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  }
  return opened;
}

absl::Status RefuseConnections(absl::Span<const FileDescriptor> listeners) {
  // Keeps no byte of any packet.
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program = {.len = 1, .filter = &drop};
  for (const FileDescriptor& listener : listeners) {
    if (setsockopt(listener.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0) {
      return absl::UnavailableError(absl::StrCat("cannot close a port to strangers: ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock::worker
