// Names of threads, as `top -H`, debuggers and tests/bench/overhead show them.
//
//   thread_ = std::thread([this] { NameThisThread("journal"); Run(); });
//
// A thread that has none is called as the one that started it, at last as its program.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace penstock {

class ThreadName {
 public:
  // A literal.
  template <size_t kSize>
  constexpr ThreadName(const char (&text)[kSize]) : text_(text) {  // NOLINT(google-explicit-constructor)
    static_assert(kSize <= 16, "the kernel keeps 15 characters of a thread's name");
  }

  const char* text() const { return text_; }

 private:
  const char* text_;
};

inline void NameThisThread(ThreadName name) { pthread_setname_np(pthread_self(), name.text()); }

}  // namespace penstock
