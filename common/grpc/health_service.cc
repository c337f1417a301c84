#include "common/grpc/health_service.h"

#include <algorithm>
#include <utility>

namespace penstock {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

HealthService::HealthService(std::vector<std::string> services) : services_(std::move(services)) {}

bool HealthService::IsKnown(const std::string& service) const {
  return service.empty() || std::find(services_.begin(), services_.end(), service) != services_.end();
}

HealthCheckResponse::ServingStatus HealthService::StatusOf(const std::string& service) {
  if (!IsKnown(service)) return HealthCheckResponse::SERVICE_UNKNOWN;
  MutexLock lock(&mutex_);
  return serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::SetServing(bool serving) {
  {
    MutexLock lock(&mutex_);
    serving_ = serving;
  }
  WakeAll();
}

void HealthService::Shutdown() {
  {
    MutexLock lock(&mutex_);
    shut_down_ = true;
    serving_ = false;
  }
  WakeAll();
}

void HealthService::WakeAll() {
  std::vector<std::shared_ptr<WatchStream>> streams;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, watch] : watches_) {
      if (auto stream = watch.lock()) streams.push_back(std::move(stream));
    }
  }
  for (const auto& stream : streams) stream->Wake();
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!IsKnown(request->service())) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND,
                                 "service: '" + request->service() + "' is not served here"));
    return reactor;
  }
  response->set_status(StatusOf(request->service()));
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

HealthService::WatchStream::Item HealthService::NextOf(const std::string& service, int* sent) {
  const auto status = StatusOf(service);
  if (status != *sent) {
    *sent = status;
    HealthCheckResponse response;
    response.set_status(status);
    return response;
  }
  MutexLock lock(&mutex_);
  if (shut_down_) return absl::UnavailableError("the server stops");
  return WatchStream::Pending{};
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(grpc::CallbackServerContext*,
                                                                    const HealthCheckRequest* request) {
  auto stream = WatchStream::Create();
  uint64_t id = 0;
  {
    MutexLock lock(&mutex_);
    id = next_watch_++;
    watches_[id] = stream;
  }
  stream->Start([this, service = request->service(), sent = -1]() mutable { return NextOf(service, &sent); },
                [this, id](grpc::StatusCode) {
                  MutexLock lock(&mutex_);
                  watches_.erase(id);
                });
  return stream.get();
}

}  // namespace penstock
