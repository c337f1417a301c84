#include "common/grpc/health_service.h"

#include <utility>

namespace penstock {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

HealthService::HealthService(const std::vector<std::string>& services, IsKnown is_known)
    : is_known_(std::move(is_known)) {
  MutexLock lock(&mutex_);
  serving_[""] = false;
  for (const std::string& service : services) serving_[service] = false;
}

HealthCheckResponse::ServingStatus HealthService::StatusOf(const std::string& service) {
  MutexLock lock(&mutex_);
  const auto found = serving_.find(service);
  if (found == serving_.end()) return HealthCheckResponse::SERVICE_UNKNOWN;
  return found->second ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

void HealthService::SetServing(const std::string& service, bool serving) {
  {
    MutexLock lock(&mutex_);
    serving_[service] = serving;
  }
  WakeAll();
}

void HealthService::StopServing() {
  {
    MutexLock lock(&mutex_);
    for (auto& [service, serving] : serving_) serving = false;
  }
  WakeAll();
}

void HealthService::Shutdown() {
  {
    MutexLock lock(&mutex_);
    shut_down_ = true;
    for (auto& [service, serving] : serving_) serving = false;
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
  const auto status = StatusOf(request->service());
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND,
                                 "service: '" + request->service() + "' is not served here"));
    return reactor;
  }
  response->set_status(status);
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

std::shared_ptr<HealthService::WatchStream> HealthService::AddWatch(bool of_stranger, uint64_t* id) {
  auto stream = WatchStream::Create();
  MutexLock lock(&mutex_);
  if (of_stranger && watches_of_strangers_ >= kMostWatchesOfStrangers) return nullptr;
  watches_of_strangers_ += of_stranger ? 1 : 0;
  *id = next_watch_++;
  watches_[*id] = stream;
  return stream;
}

void HealthService::RemoveWatch(bool of_stranger, uint64_t id) {
  MutexLock lock(&mutex_);
  watches_of_strangers_ -= of_stranger ? 1 : 0;
  watches_.erase(id);
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(grpc::CallbackServerContext* context,
                                                                    const HealthCheckRequest* request) {
  const bool of_stranger = is_known_ && !is_known_(*context);
  uint64_t id = 0;
  auto stream = AddWatch(of_stranger, &id);
  if (stream == nullptr) {
    stream = WatchStream::Create();
    stream->Start([]() -> WatchStream::Item {
      return absl::ResourceExhaustedError("too many callers without a certificate or token watch: use Check");
    });
    return stream.get();
  }
  stream->Start([this, service = request->service(), sent = -1]() mutable { return NextOf(service, &sent); },
                [this, of_stranger, id] { RemoveWatch(of_stranger, id); });
  return stream.get();
}

}  // namespace penstock
