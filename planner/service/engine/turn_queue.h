// Tasks of several sources that take turns; those of one source come in their order. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace penstock {

template <typename Task>
class TurnQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  void Push(const std::string& source, Task task) {
    std::deque<Task>& tasks = sources_[source];
    if (tasks.empty()) turns_.push_back(source);
    tasks.push_back(std::move(task));
    ++size_;
  }

  // The next one. The queue is not empty.
  const Task& front() const { return sources_.at(turns_.front()).front(); }
  Task Pop() {
    const auto source = sources_.find(turns_.front());
    turns_.pop_front();
    Task task = std::move(source->second.front());
    source->second.pop_front();
    --size_;
    if (source->second.empty()) {
      sources_.erase(source);
    } else {
      turns_.push_back(source->first);
    }
    return task;
  }

  // Takes out the first task of the source for which `is_it` holds.
  template <typename Predicate>
  std::optional<Task> Remove(const std::string& name, Predicate is_it) {
    const auto source = sources_.find(name);
    if (source == sources_.end()) return std::nullopt;
    std::deque<Task>& tasks = source->second;
    const auto found = std::find_if(tasks.begin(), tasks.end(), is_it);
    if (found == tasks.end()) return std::nullopt;
    std::optional<Task> task = std::move(*found);
    tasks.erase(found);
    --size_;
    if (tasks.empty()) {
      turns_.erase(std::find(turns_.begin(), turns_.end(), name));
      sources_.erase(source);
    }
    return task;
  }

 private:
  // With a task each.
  std::map<std::string, std::deque<Task>> sources_;
  // The next one first.
  std::deque<std::string> turns_;
  size_t size_ = 0;
};

}  // namespace penstock
