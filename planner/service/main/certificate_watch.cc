#include "planner/service/main/certificate_watch.h"

#include "common/grpc/security/certificate_dates.h"
#include "common/logging/logging.h"

namespace penstock {
namespace {

constexpr char kCertificate[] = "--tls-cert";
constexpr char kClientAuthority[] = "--tls-client-ca";

}  // namespace

CertificateWatch::CertificateWatch(const ServerSecurity& security, MetricsRegistry* registry) {
  for (const auto& [flag, path] : {std::pair(kCertificate, &security.certificate),
                                   std::pair(kClientAuthority, &security.client_authority)}) {
    if (!path->empty()) files_.push_back({.flag = flag, .path = *path});
  }
  if (files_.empty()) return;
  std::vector<std::pair<std::string, std::string>> read;
  for (const File& file : files_) read.emplace_back(file.flag.substr(2), file.path);
  registry->AddComputedGauge(
      "penstock_certificate_expiry_timestamp_seconds",
      "When the first certificate of a file ends, seconds since 1970.", [read] {
        MetricSamples samples;
        for (const auto& [name, path] : read) {
          const auto dates = DatesOfChain(path, name);
          if (!dates.ok()) continue;
          samples.push_back({{{"file", name}}, static_cast<double>(absl::ToUnixSeconds(dates->end))});
        }
        return samples;
      });
}

void CertificateWatch::LookAt(absl::Time now, File* file) {
  const absl::StatusOr<CertificateDates> dates = DatesOfChain(file->path, file->flag);
  // What is wrong with a file at the start ends the planner; one that is being replaced is whole soon.
  if (!dates.ok() || dates->end - now > CertificateWatch::kSoon) return;
  const bool over = now > dates->end;
  const bool known = file->said_end == dates->end && file->said_over == over;
  if (known && now - file->said_at < CertificateWatch::kAgain) return;
  file->said_end = dates->end;
  file->said_at = now;
  file->said_over = over;
  const std::string end = DateText(dates->end);
  if (over) {
    LogError("a certificate has expired: no new connection that needs it comes about",
             {{"flag", file->flag}, {"file", file->path}, {"expired", end}});
  } else {
    LogWarning("a certificate expires soon", {{"flag", file->flag},
                                              {"file", file->path},
                                              {"expires", end},
                                              {"days", absl::ToInt64Hours(dates->end - now) / 24}});
  }
}

void CertificateWatch::Look(absl::Time now) {
  for (File& file : files_) LookAt(now, &file);
}

}  // namespace penstock
