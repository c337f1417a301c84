#include "worker/runtime/token_reader.h"

#include <optional>
#include <utility>
#include <vector>

#include "common/sync/sync.h"

namespace penstock::worker {

// The tokens of one program: each entry is made by the thread, or by who takes it where the thread has not
// come to it yet.
class TokenReader::Reading {
 public:
  explicit Reading(std::shared_ptr<const Program> program) : program_(std::move(program)) {
    for (const Instruction& instruction : program_->instructions) {
      if (instruction.op != Op::kForward) continue;
      const BufferKey key = {instruction.stage, instruction.micro_batch};
      if (entries_.try_emplace(key).second) order_.push_back(key);
    }
  }

  // Makes what nobody has made, until Drop.
  void Run(const TokenReader& reader) {
    for (const BufferKey& key : order_) {
      if (!Claim(key)) continue;
      absl::StatusOr<TokenBatch> tokens = reader.Read(*program_, key);
      MutexLock lock(&mutex_);
      entries_.at(key) = {State::kMade, std::move(tokens)};
      changed_.SignalAll();
    }
  }

  // Nothing: the caller makes it. Waits while the thread does.
  std::optional<absl::StatusOr<TokenBatch>> Take(const BufferKey& key) {
    MutexLock lock(&mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return std::nullopt;
    while (found->second.state == State::kBeingMade) changed_.Wait(&mutex_);
    const Entry entry = std::exchange(found->second, {State::kTaken, TokenBatch()});
    if (entry.state != State::kMade) return std::nullopt;
    return entry.tokens;
  }

  void Drop() {
    MutexLock lock(&mutex_);
    dropped_ = true;
  }

 private:
  enum class State : uint8_t { kWaiting, kBeingMade, kMade, kTaken };
  struct Entry {
    State state = State::kWaiting;
    absl::StatusOr<TokenBatch> tokens = TokenBatch();
  };

  bool Claim(const BufferKey& key) {
    MutexLock lock(&mutex_);
    Entry& entry = entries_.at(key);
    if (dropped_ || entry.state != State::kWaiting) return false;
    entry.state = State::kBeingMade;
    return true;
  }

  const std::shared_ptr<const Program> program_;
  std::vector<BufferKey> order_;
  Mutex mutex_;
  CondVar changed_;
  std::map<BufferKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  bool dropped_ ABSL_GUARDED_BY(mutex_) = false;
};

TokenReader::TokenReader(Device* device, ModelConfig model, const GroupPlace& place)
    : device_(*device), model_(std::move(model)), place_(place) {}

TokenReader::~TokenReader() {
  for (const auto& [key, reading] : readings_) reading->Drop();
}

void TokenReader::Begin(std::shared_ptr<const Program> program) {
  const Key key = KeyOf(*program);
  if (readings_.contains(key)) return;
  while (!readings_.empty() && readings_.begin()->first.first + 1 < program->iteration) {
    readings_.begin()->second->Drop();
    readings_.erase(readings_.begin());
  }
  const auto reading = std::make_shared<Reading>(std::move(program));
  readings_[key] = reading;
  thread_.Add([this, reading] { reading->Run(*this); });
}

absl::StatusOr<TokenBatch> TokenReader::Take(const Program& program, const BufferKey& key) {
  if (const auto reading = readings_.find(KeyOf(program)); reading != readings_.end()) {
    if (std::optional<absl::StatusOr<TokenBatch>> tokens = reading->second->Take(key))
      return *std::move(tokens);
  }
  return Read(program, key);
}

absl::StatusOr<TokenBatch> TokenReader::Read(const Program& program, const BufferKey& key) const {
  const StageRange range = StageRangeOf(program.layers_per_stage, key.stage);
  return device_.ReadTokens(program.micro_batches[key.micro_batch], model_, TokenNeedsOf(model_, range),
                            place_);
}

}  // namespace penstock::worker
