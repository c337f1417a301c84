#include "common/secret/sealed_values.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <cstddef>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/hash/hmac_sha256.h"
#include "common/secret/derived_key.h"

namespace penstock {
namespace {

// What a sealed value consists of: nonce, value, tag.
constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;

using CipherContext = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

CipherContext NewContext() { return {EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free}; }

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

unsigned char* Bytes(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

bool Encrypt(EVP_CIPHER_CTX* context, absl::string_view key, absl::string_view name, absl::string_view value,
             std::string& sealed) {
  int size = 0;
  unsigned char* const nonce = Bytes(sealed);
  unsigned char* const text = nonce + kNonceBytes;
  unsigned char* const tag = text + value.size();
  return RAND_bytes(nonce, kNonceBytes) == 1 &&
         EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), nullptr, Bytes(key), nonce) == 1 &&
         EVP_EncryptUpdate(context, nullptr, &size, Bytes(name), static_cast<int>(name.size())) == 1 &&
         EVP_EncryptUpdate(context, text, &size, Bytes(value), static_cast<int>(value.size())) == 1 &&
         EVP_EncryptFinal_ex(context, tag, &size) == 1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, kTagBytes, tag) == 1;
}

// `sealed` has room for nonce and tag. What is in `value` counts only where it is true.
bool Decrypt(EVP_CIPHER_CTX* context, absl::string_view key, absl::string_view name, absl::string_view sealed,
             std::string& value) {
  int size = 0;
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  const absl::string_view text = sealed.substr(kNonceBytes, sealed.size() - kNonceBytes - kTagBytes);
  return EVP_DecryptInit_ex(context, EVP_aes_256_gcm(), nullptr, Bytes(key), Bytes(sealed)) == 1 &&
         EVP_DecryptUpdate(context, nullptr, &size, Bytes(name), static_cast<int>(name.size())) == 1 &&
         EVP_DecryptUpdate(context, Bytes(value), &size, Bytes(text), static_cast<int>(text.size())) == 1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1 &&
         EVP_DecryptFinal_ex(context, Bytes(value) + text.size(), &size) == 1;
}

}  // namespace

SealedValues::SealedValues(absl::string_view secret, absl::string_view purpose)
    : name_key_(DeriveKey(secret, absl::StrCat("names\n", purpose))),
      value_key_(DeriveKey(secret, absl::StrCat("values\n", purpose))) {}

std::string SealedValues::HiddenName(absl::string_view name) const {
  return absl::BytesToHexString(HmacSha256(name_key_, name));
}

absl::StatusOr<std::string> SealedValues::Seal(absl::string_view name, absl::string_view value) const {
  std::string sealed(kNonceBytes + value.size() + kTagBytes, '\0');
  const CipherContext context = NewContext();
  if (context != nullptr && Encrypt(context.get(), value_key_, name, value, sealed)) return sealed;
  return absl::InternalError("OpenSSL cannot encrypt with AES-256-GCM");
}

absl::StatusOr<std::string> SealedValues::Open(absl::string_view name, absl::string_view sealed) const {
  const CipherContext context = NewContext();
  if (sealed.size() >= kNonceBytes + kTagBytes && context != nullptr) {
    // One byte more than needed, so that there is a place to write nothing to.
    std::string value(sealed.size() - kNonceBytes - kTagBytes + 1, '\0');
    if (Decrypt(context.get(), value_key_, name, sealed, value)) {
      value.pop_back();
      return value;
    }
  }
  return absl::UnauthenticatedError("was not made with the secret, or has been changed");
}

}  // namespace penstock
