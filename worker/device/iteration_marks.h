// Marks are places in a stream of a device (device_streams.h): which one says what in an iteration.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::worker {

// Numbers count from 0 in each iteration.
using Mark = uint32_t;

class IterationMarks {
 public:
  // Of an iteration with so many instructions, and so much work beside them that is waited for apart.
  explicit IterationMarks(size_t instructions = 0, size_t works = 0)
      : instructions_(static_cast<Mark>(instructions)), works_(static_cast<Mark>(works)) {}

  size_t works() const { return works_; }

  // All that the instruction did is before it. Set by the order (stream_order.h).
  Mark EndOf(uint32_t id) const { return id; }
  // The others are set by the timer (stream_timer.h). What the instruction waits for is before its begin, but
  // for a WAIT's.
  Mark BeginOf(uint32_t id) const { return instructions_ + id; }
  Mark start() const { return 2 * instructions_; }
  // All of the work is before it, which is the one of this number, from 0, of `works`. Set by the order.
  Mark EndOfWork(size_t work) const { return start() + 1 + static_cast<Mark>(work); }
  // The last one: set anew by the order for each work that is done beside an instruction, how far that has
  // come. What waits for it waits for the latest setting.
  Mark beside() const { return start() + 1 + works_; }
  size_t count() const { return size_t{beside()} + 1; }

 private:
  Mark instructions_ = 0;
  Mark works_ = 0;
};

}  // namespace penstock::worker
