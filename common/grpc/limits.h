// Limits that both ends of a connection must agree on.
#pragma once

namespace penstock {

// Largest message sent or received, bytes. A plan of 4,096 samples on 64 ranks is about 20 MB.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Keepalive pings: a peer of an open stream that is dead, or hangs, is noticed after the interval and the
// timeout, however long the stream was idle.
inline constexpr int kKeepaliveIntervalMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;
// Servers accept pings that come at least this far apart, also from clients without an open call.
inline constexpr int kMinPingIntervalMs = 1'000;

}  // namespace penstock
