// Inputs that are protobuf messages. libFuzzer's own changes of bytes seldom give a message that can be read:
// a target with FUZZ_MESSAGE_MUTATOR changes fields instead (tests/support/message_mutator.h), and begins
// with a valid message, so that it needs no corpus.
//
//   FUZZ_MESSAGE_MUTATOR(v1::PlannedBatch, [](uint32_t seed) { return ValidPlan(seed); })
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>

#include "tests/support/message_mutator.h"

// libFuzzer's; changes bytes.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace penstock::fuzz {

// Writes the message to `data` if it is small enough; 0 if it is not.
inline size_t Write(const google::protobuf::Message& message, uint8_t* data, size_t max_size) {
  const size_t size = message.ByteSizeLong();
  if (size > max_size) return 0;
  message.SerializePartialToArray(data, static_cast<int>(size));
  return size;
}

template <typename Message, typename MakeValid>
size_t Mutate(uint8_t* data, size_t size, size_t max_size, uint32_t seed, MakeValid make_valid) {
  MessageMutator mutator(seed);
  if (mutator.Below(10) == 0 && size > 0) return LLVMFuzzerMutate(data, size, max_size);
  Message message;
  // libFuzzer begins with a byte or two, which are as good as nothing.
  constexpr size_t kNothing = 2;
  if (size <= kNothing || !message.ParseFromArray(data, static_cast<int>(size))) message = make_valid(seed);
  for (uint64_t changes = mutator.Below(4); changes > 0; --changes) mutator.Apply(message);
  const size_t written = Write(message, data, max_size);
  return written > 0 ? written : size;
}

}  // namespace penstock::fuzz

#define FUZZ_MESSAGE_MUTATOR(Message, make_valid)                                                         \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) { \
    return penstock::fuzz::Mutate<Message>(data, size, max_size, seed, make_valid);                       \
  }
