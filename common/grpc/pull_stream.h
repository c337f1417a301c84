// A server stream that takes its messages from a source when the client has room for them.
//
// One write is in flight at a time and the next message is only made when it has ended, so a slow reader
// costs one message of memory. Finish is called exactly once.
//
//   auto stream = PullStream<Response>::Create();
//   stream->Start([...]() -> PullStream<Response>::Item { ... });
//   return stream.get();           // from the handler of the callback service
//   stream->Wake();                // from any thread: the source may have more now
//
// The source is called by one thread at a time and never after the end. When it answers Pending it must see
// to it that Wake() is called once that changes.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "common/grpc/status_conversion.h"
#include "common/sync/sync.h"

namespace penstock {

template <typename Response>
class PullStream final : public grpc::ServerWriteReactor<Response>,
                         public std::enable_shared_from_this<PullStream<Response>> {
 public:
  // Nothing to send yet.
  struct Pending {};
  // The next message, nothing yet, or the end of the stream.
  using Item = std::variant<Pending, Response, absl::Status>;
  using Source = std::function<Item()>;
  using Done = std::function<void()>;

  static std::shared_ptr<PullStream> Create() { return std::shared_ptr<PullStream>(new PullStream()); }

  // Sends what there is. `done` is called once, after the last message; the source is destroyed by then.
  void Start(Source source, Done done = nullptr) {
    self_ = this->shared_from_this();
    source_ = std::move(source);
    done_ = std::move(done);
    Run();
  }

  // The source may have something new. Cheap; may be called for nothing, before Start() and after the end.
  void Wake() {
    {
      MutexLock lock(&mutex_);
      if (busy_) {
        look_again_ = true;
        return;
      }
      busy_ = true;
    }
    Run();
  }

  void OnWriteDone(bool ok) override {
    response_ = Response();  // its memory is free while there is nothing to send
    if (ok) {
      Run();
    } else {
      End(absl::CancelledError("the client went away"));
    }
  }

  void OnCancel() override {
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
    }
    Wake();
  }

  void OnDone() override {
    auto self = std::move(self_);  // deletes the stream when the last waker lets go of it
    source_ = nullptr;
    if (done_) done_();
  }

 private:
  PullStream() = default;

  // Runs on the thread that made busy_ true, which nobody else does until it is false again. After the end it
  // stays true.
  void Run() {
    while (true) {
      if (TakeCancelled()) return End(absl::CancelledError("the client cancelled"));
      Item item = source_();
      if (auto* response = std::get_if<Response>(&item)) {
        response_ = std::move(*response);
        return this->StartWrite(&response_);
      }
      if (auto* status = std::get_if<absl::Status>(&item)) return End(*status);
      if (Rest()) return;
    }
  }

  bool TakeCancelled() {
    MutexLock lock(&mutex_);
    look_again_ = false;
    return cancelled_;
  }

  // False when a wake came while the source was asked.
  bool Rest() {
    MutexLock lock(&mutex_);
    busy_ = look_again_;
    return !busy_;
  }

  void End(const absl::Status& status) { this->Finish(ToGrpcStatus(status)); }

  Mutex mutex_;
  // True while a thread asks the source, a write is in flight, or the stream has ended.
  bool busy_ ABSL_GUARDED_BY(mutex_) = true;
  bool look_again_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;

  // Only touched by the thread that is busy.
  Source source_;
  Done done_;
  Response response_;
  std::shared_ptr<PullStream> self_;
};

}  // namespace penstock
