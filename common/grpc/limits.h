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

// What a stranger who reaches a server's port can make it hold. Handshakes that take longer are cut off:
inline constexpr int kHandshakeTimeoutMs = 10'000;
// Calls that are open at a time on one connection; more wait on the client's side.
inline constexpr int kMaxStreamsPerConnection = 256;
// Headers of a call, bytes.
inline constexpr int kMaxMetadataBytes = 16 << 10;
// A connection without any call is closed; a client that has something to say opens another by itself.
inline constexpr int kMaxIdleConnectionMs = 300'000;

}  // namespace penstock
