#include "common/sync/task_thread.h"

#include <utility>

namespace penstock {

TaskThread::~TaskThread() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void TaskThread::Add(std::function<void()> task) {
  MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  changed_.Signal();
}

void TaskThread::Run(ThreadName name) {
  NameThisThread(name);
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && tasks_.empty()) changed_.Wait(&mutex_);
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace penstock
