// Why no connection with a planner comes about, where that lies with certificates: gRPC says "certificate
// verify failed" or "Socket closed" and tries again. One handshake is tried beside it, over which nothing is
// sent.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "penstock/client/security.h"

namespace penstock {

// `addresses`: as CreateClientChannel takes them; each is tried until one has something to say. Blocks until
// `limit` is over at most, beside the time that names take to be looked up.
// OK: nothing is wrong with the handshake, or nobody answers. Possible errors, for people: UNAVAILABLE (a
// certificate of this side or of that one is expired, of another authority or for another name; it is not
// TLS; the planner ends connections after the handshake).
absl::Status ExplainHandshake(const std::string& addresses, const ClientSecurity& security,
                              absl::Duration limit);

}  // namespace penstock
