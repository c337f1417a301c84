// An exchange with an HTTP server, byte by byte: what a browser would never send can be sent, too.
#pragma once

#include <string>

namespace penstock {

// Everything that the loopback port answers to `request` until it closes the connection, or an empty string.
std::string ExchangeHttp(int port, const std::string& request);

// The answer to "METHOD path", without a body; `headers` are lines that end with "\r\n".
std::string HttpAnswerTo(int port, const std::string& method, const std::string& path,
                         const std::string& headers = "");

// What follows the empty line.
std::string BodyOf(const std::string& answer);

}  // namespace penstock
