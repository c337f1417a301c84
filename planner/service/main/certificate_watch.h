// Says in log and metrics until when the planner's certificates are valid: callers learn no more of one that
// is over than that no connection comes about.
//
//   CertificateWatch watch(options.security, &registry);
//   ... every minute or so: watch.Look(absl::Now());
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/grpc/security/server_security.h"
#include "common/metrics/metrics.h"

namespace penstock {

class CertificateWatch {
 public:
  // Two weeks before the end it is said for the first time, and then once a day.
  static constexpr absl::Duration kSoon = absl::Hours(24 * 14);
  static constexpr absl::Duration kAgain = absl::Hours(24);

  // Adds penstock_certificate_expiry_timestamp_seconds{file}, read from the files at each scrape; `registry`
  // must outlive scrapes. Without certificates nothing is said.
  CertificateWatch(const ServerSecurity& security, MetricsRegistry* registry);

  // Reads the files, which may have been renewed. One thread at a time.
  void Look(absl::Time now);

 private:
  struct File {
    std::string flag;
    std::string path;
    // Of what was said last; the certificate may be another one since.
    absl::Time said_end = absl::InfinitePast();
    absl::Time said_at = absl::InfinitePast();
    bool said_over = false;
  };

  static void LookAt(absl::Time now, File* file);

  std::vector<File> files_;
};

}  // namespace penstock
