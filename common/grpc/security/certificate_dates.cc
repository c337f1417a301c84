#include "common/grpc/security/certificate_dates.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

struct FreeOfPem {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};

absl::StatusOr<absl::Time> TimeOf(const ASN1_TIME* time) {
  tm parts = {};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1)
    return absl::InvalidArgumentError("a certificate has no date");
  return absl::FromTM(parts, absl::UTCTimeZone());
}

absl::Status CheckDates(const CertificateDates& dates, const std::string& path, absl::string_view flag,
                        absl::Time now) {
  if (now > dates.end) {
    return absl::FailedPreconditionError(
        absl::StrCat(flag, ": '", path, "' expired on ", DateText(dates.end), "; renew it"));
  }
  if (now < dates.begin) {
    return absl::FailedPreconditionError(absl::StrCat(flag, ": '", path, "' is not valid before ",
                                                      DateText(dates.begin),
                                                      ": is the clock of this machine right?"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<CertificateDates>> DatesOfFile(const std::string& path, absl::string_view flag) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return AnnotateError(text.status(), flag);
  absl::StatusOr<std::vector<CertificateDates>> dates = DatesOfCertificates(*text);
  if (!dates.ok()) return AnnotateError(dates.status(), absl::StrCat(flag, ": '", path, "'"));
  return dates;
}

}  // namespace

std::string DateText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

absl::StatusOr<CertificateDates> DatesOf(const X509& certificate) {
  CertificateDates dates;
  PENSTOCK_ASSIGN_OR_RETURN(dates.begin, TimeOf(X509_get0_notBefore(&certificate)));
  PENSTOCK_ASSIGN_OR_RETURN(dates.end, TimeOf(X509_get0_notAfter(&certificate)));
  return dates;
}

absl::StatusOr<std::vector<CertificateDates>> DatesOfCertificates(const std::string& pem) {
  const std::unique_ptr<BIO, FreeOfPem> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  std::vector<CertificateDates> all;
  while (true) {
    const std::unique_ptr<X509, FreeOfPem> certificate(
        PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) break;
    PENSTOCK_ASSIGN_OR_RETURN(const CertificateDates dates, DatesOf(*certificate));
    all.push_back(dates);
  }
  // The end of the text is an error to OpenSSL, too.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (all.empty() || !at_end)
    return absl::InvalidArgumentError("holds no certificate in PEM, or a damaged one");
  return all;
}

absl::StatusOr<CertificateDates> DatesOfChain(const std::string& path, absl::string_view flag) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<CertificateDates> all, DatesOfFile(path, flag));
  CertificateDates chain = all.front();
  for (const CertificateDates& one : all) {
    chain.begin = std::max(chain.begin, one.begin);
    chain.end = std::min(chain.end, one.end);
  }
  return chain;
}

absl::Status CheckChainIsValid(const std::string& path, absl::string_view flag, absl::Time now) {
  PENSTOCK_ASSIGN_OR_RETURN(const CertificateDates chain, DatesOfChain(path, flag));
  return CheckDates(chain, path, flag, now);
}

absl::Status CheckSomeAuthorityIsValid(const std::string& path, absl::string_view flag, absl::Time now) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<CertificateDates> all, DatesOfFile(path, flag));
  absl::Status last;
  for (const CertificateDates& one : all) {
    last = CheckDates(one, path, flag, now);
    if (last.ok()) break;
  }
  return last;
}

}  // namespace penstock
