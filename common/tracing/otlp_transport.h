// Sends spans to a collector of OpenTelemetry by OTLP over gRPC, without TLS.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/tracing/span_exporter.h"

namespace penstock {

// What is wrong with an address of a collector that a user gave, as CLI11 wants it of a check of a flag;
// empty: nothing. No address at all, no collector.
std::string WhatIsWrongWithCollector(const std::string& endpoint);

// `endpoint` is "host:port". Does not connect yet. `resource`: what is true of all spans of this process.
std::unique_ptr<SpanTransport> ConnectToCollector(const std::string& endpoint,
                                                  std::vector<SpanAttribute> resource);

}  // namespace penstock
