#include "common/grpc/security/handshake.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/grpc/security/certificate_dates.h"
#include "common/net/resolve.h"
#include "common/process/file_descriptor.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

// The planner speaks first once it has accepted a certificate; one that does not closes the connection.
constexpr absl::Duration kFirstWords = absl::Milliseconds(500);
// HTTP/2, as gRPC asks for it.
constexpr unsigned char kProtocol[] = {2, 'h', '2'};

struct FreeOfTls {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* connection) const { SSL_free(connection); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};

// False when the time is over.
bool AwaitEvents(int descriptor, short events, absl::Time deadline) {
  const absl::Duration left = deadline - absl::Now();
  if (left <= absl::ZeroDuration()) return false;
  pollfd waited = {.fd = descriptor, .events = events, .revents = 0};
  return poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) > 0;
}

// Whether it is connected in time.
bool Connect(int descriptor, const addrinfo& to, absl::Time deadline) {
  if (descriptor < 0 || fcntl(descriptor, F_SETFL, O_NONBLOCK) != 0) return false;
  if (connect(descriptor, to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS || !AwaitEvents(descriptor, POLLOUT, deadline)) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

// How a call of OpenSSL ended, repeated as long as it waits for the other side: SSL_ERROR_NONE, or what is
// wrong; SSL_ERROR_WANT_READ: the time is over.
template <typename Call>
int Repeat(SSL* connection, int descriptor, absl::Time deadline, Call call) {
  while (true) {
    ERR_clear_error();
    const int result = call();
    if (result > 0) return SSL_ERROR_NONE;
    const int error = SSL_get_error(connection, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return error;
    if (!AwaitEvents(descriptor, error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline))
      return SSL_ERROR_WANT_READ;
  }
}

// What the last error of OpenSSL is; its own word for most.
std::string LastReason() {
  const unsigned long error = ERR_peek_last_error();
  if (ERR_GET_REASON(error) == SSL_R_WRONG_VERSION_NUMBER)
    return "it does not speak TLS (without --tls-ca nothing is encrypted)";
  const char* const reason = ERR_reason_error_string(error);
  if (reason == nullptr || ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
    return "it ends the connection";
  return reason;
}

// A handshake with one address, whatever its outcome is judged as.
class Handshake {
 public:
  Handshake(std::string address, std::string host, const ClientSecurity& security)
      : address_(std::move(address)), host_(std::move(host)), security_(security) {}

  absl::Status Try(int descriptor, absl::Time deadline) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    PENSTOCK_RETURN_IF_ERROR(LoadFiles());
    connection_.reset(SSL_new(context_.get()));
    SSL_set_fd(connection_.get(), descriptor);
    SSL_set_alpn_protos(connection_.get(), kProtocol, sizeof(kProtocol));
    ExpectName();
    const int ended =
        Repeat(connection_.get(), descriptor, deadline, [this] { return SSL_connect(connection_.get()); });
    if (ended == SSL_ERROR_WANT_READ) return absl::OkStatus();
    if (ended != SSL_ERROR_NONE)
      return Wrong(
          absl::StrCat("the TLS handshake with the planner at ", address_, " fails: ", LastReason()));
    PENSTOCK_RETURN_IF_ERROR(JudgeTheirs());
    return AwaitFirstWords(descriptor, std::min(deadline, absl::Now() + kFirstWords));
  }

 private:
  static absl::Status Wrong(const std::string& what) { return absl::UnavailableError(what); }

  absl::Status LoadFiles() {
    SSL_CTX* const context = context_.get();
    // Judged afterwards, when more is known than that it was refused.
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
    if (SSL_CTX_load_verify_locations(context, security_.authority.c_str(), nullptr) != 1)
      return Wrong(absl::StrCat("--tls-ca: '", security_.authority, "': ", LastReason()));
    if (security_.certificate.empty()) return absl::OkStatus();
    if (SSL_CTX_use_certificate_chain_file(context, security_.certificate.c_str()) != 1)
      return Wrong(absl::StrCat("--tls-cert: '", security_.certificate, "': ", LastReason()));
    if (SSL_CTX_use_PrivateKey_file(context, security_.key.c_str(), SSL_FILETYPE_PEM) != 1)
      return Wrong(
          absl::StrCat("--tls-key: '", security_.key, "' is not the key of --tls-cert: ", LastReason()));
    return absl::OkStatus();
  }

  void ExpectName() {
    const std::string& name = security_.server_name.empty() ? host_ : security_.server_name;
    in6_addr parsed = {};
    if (inet_pton(AF_INET, name.c_str(), &parsed) == 1 || inet_pton(AF_INET6, name.c_str(), &parsed) == 1) {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection_.get()), name.c_str());
      return;
    }
    SSL_set_tlsext_host_name(connection_.get(), name.c_str());
    SSL_set1_host(connection_.get(), name.c_str());
  }

  // The planner's certificate.
  absl::Status JudgeTheirs() const {
    const long verdict = SSL_get_verify_result(connection_.get());
    if (verdict == X509_V_OK) return absl::OkStatus();
    const std::unique_ptr<X509, FreeOfTls> shown(SSL_get1_peer_certificate(connection_.get()));
    if (verdict == X509_V_ERR_CERT_HAS_EXPIRED && shown != nullptr) {
      const absl::StatusOr<CertificateDates> dates = DatesOf(*shown);
      if (dates.ok() && dates->end < absl::Now()) {
        return Wrong(absl::StrCat("the certificate of the planner at ", address_, " expired on ",
                                  DateText(dates->end), "; renew it there"));
      }
    }
    return Wrong(
        absl::StrCat("the certificate of the planner at ", address_,
                     " is not accepted: ", X509_verify_cert_error_string(verdict),
                     verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH
                         ? " (--tls-server-name says for which name it is)"
                         : ""));
  }

  // Who did not accept this side's certificate says so now, or goes without a word.
  absl::Status AwaitFirstWords(int descriptor, absl::Time deadline) const {
    char first = 0;
    const int ended = Repeat(connection_.get(), descriptor, deadline,
                             [&] { return SSL_read(connection_.get(), &first, 1); });
    if (ended == SSL_ERROR_NONE || ended == SSL_ERROR_WANT_READ) return absl::OkStatus();
    return Wrong(absl::StrCat(
        "the planner at ", address_, " does not accept ",
        security_.certificate.empty()
            ? std::string("a caller without a certificate (--tls-cert)")
            : absl::StrCat("the certificate of --tls-cert '", security_.certificate, "'"),
        ": ", LastReason(), " (its --tls-client-ca says whose it accepts, its clock until when)"));
  }

  const std::string address_;
  const std::string host_;
  const ClientSecurity& security_;
  std::unique_ptr<SSL_CTX, FreeOfTls> context_;
  std::unique_ptr<SSL, FreeOfTls> connection_;
};

// "host:port".
absl::Status ExplainOne(const std::string& address, const ClientSecurity& security, absl::Time deadline) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return absl::OkStatus();
  const std::string host = WithoutBrackets(address.substr(0, colon));
  const absl::StatusOr<Addresses> found = Resolve(host.c_str(), address.substr(colon + 1));
  if (!found.ok()) return absl::OkStatus();
  for (const addrinfo* one = found->get(); one != nullptr; one = one->ai_next) {
    const FileDescriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!Connect(socket.get(), *one, deadline)) continue;
    return Handshake(address, host, security).Try(socket.get(), deadline);
  }
  return absl::OkStatus();
}

absl::Status CheckOwnDates(const ClientSecurity& security) {
  const absl::Time now = absl::Now();
  PENSTOCK_RETURN_IF_ERROR(CheckSomeAuthorityIsValid(security.authority, "--tls-ca", now));
  if (security.certificate.empty()) return absl::OkStatus();
  return CheckChainIsValid(security.certificate, "--tls-cert", now);
}

}  // namespace

absl::Status ExplainHandshake(const std::string& addresses, const ClientSecurity& security,
                              absl::Duration limit) {
  if (!security.encrypts()) return absl::OkStatus();
  if (const absl::Status own = CheckOwnDates(security); !own.ok())
    return absl::UnavailableError(own.message());
  const absl::Time deadline = absl::Now() + limit;
  for (absl::string_view address : absl::StrSplit(absl::StripPrefix(addresses, "dns:///"), ',')) {
    PENSTOCK_RETURN_IF_ERROR(
        ExplainOne(std::string(absl::StripAsciiWhitespace(address)), security, deadline));
  }
  return absl::OkStatus();
}

}  // namespace penstock
