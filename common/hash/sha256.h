// SHA-256 of bytes, and of messages: the content hashes of batches and plans.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

// OpenSSL's.
struct evp_md_ctx_st;

namespace penstock {

// 32 bytes. For display use absl::BytesToHexString.
std::string Sha256(absl::string_view bytes);

// The same of bytes that come one after another. Not thread-safe.
class Sha256Sum {
 public:
  Sha256Sum();
  ~Sha256Sum();
  Sha256Sum(const Sha256Sum&) = delete;
  Sha256Sum& operator=(const Sha256Sum&) = delete;

  void Add(absl::string_view bytes);
  // Of all that was added; once.
  std::string Digest();

 private:
  evp_md_ctx_st* const context_;
};

}  // namespace penstock
