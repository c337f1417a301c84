// Tells of each call that a server has ended: rate, errors and duration of its methods.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace penstock {

struct EndedCall {
  // "GetJob".
  absl::string_view method;
  grpc::StatusCode code = grpc::StatusCode::OK;
  // From its beginning until its status was sent; of a stream that is as long as its client reads.
  absl::Duration duration;
  bool streams = false;
};

// Called by any thread; must not block.
using CallObserver = std::function<void(const EndedCall&)>;

// Calls to methods that no service of this program has are not told of.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> ObserveCalls(CallObserver observer);

}  // namespace penstock
