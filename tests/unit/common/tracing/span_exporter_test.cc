#include "common/tracing/span_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;

// A collector that a test opens, closes and breaks. Outlives the transports to it.
class Collector {
 public:
  // The answer to each try; what it returns.
  using Answer = std::function<absl::StatusOr<size_t>()>;

  std::unique_ptr<SpanTransport> Connect() { return std::make_unique<Transport>(this); }

  // From now on tries wait, until Open or Cancel.
  void Close() {
    MutexLock lock(&mutex_);
    open_ = false;
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.SignalAll();
  }
  void AnswerWith(Answer answer) {
    MutexLock lock(&mutex_);
    answer_ = std::move(answer);
  }

  // Waits until so many tries have begun. False after 20 s.
  bool AwaitTries(int count) {
    return Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return tries_ >= count; });
  }
  // Waits until so many spans are there.
  bool AwaitSpans(size_t count) {
    return Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return names_.size() >= count; });
  }
  std::vector<std::string> names() const {
    MutexLock lock(&mutex_);
    return names_;
  }
  std::vector<size_t> sizes() const {
    MutexLock lock(&mutex_);
    return sizes_;
  }
  int tries() const {
    MutexLock lock(&mutex_);
    return tries_;
  }

 private:
  class Transport final : public SpanTransport {
   public:
    explicit Transport(Collector* collector) : collector_(collector) {}
    absl::StatusOr<size_t> Send(const std::vector<TraceSpan>& spans, absl::Duration) override {
      return collector_->Take(spans);
    }
    void Cancel() override { collector_->Cancel(); }

   private:
    Collector* const collector_;
  };

  template <typename Condition>
  bool Await(Condition condition) {
    MutexLock lock(&mutex_);
    while (!condition()) {
      if (changed_.WaitWithTimeout(&mutex_, absl::Seconds(20)) && !condition()) return false;
    }
    return true;
  }

  absl::StatusOr<size_t> Take(const std::vector<TraceSpan>& spans) {
    MutexLock lock(&mutex_);
    ++tries_;
    changed_.SignalAll();
    while (!open_ && !cancelled_) changed_.Wait(&mutex_);
    if (cancelled_) return absl::CancelledError("cancelled");
    absl::StatusOr<size_t> answer = answer_ ? answer_() : size_t{0};
    if (!answer.ok()) return answer;
    sizes_.push_back(spans.size());
    for (const TraceSpan& span : spans) names_.push_back(span.name);
    changed_.SignalAll();
    return answer;
  }

  void Cancel() {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    changed_.SignalAll();
  }

  mutable Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  Answer answer_ ABSL_GUARDED_BY(mutex_);
  int tries_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> sizes_ ABSL_GUARDED_BY(mutex_);
};

TraceSpan Named(std::string name) {
  TraceSpan span;
  span.name = std::move(name);
  return span;
}

void AddNumbered(SpanExporter& exporter, int first, int count) {
  for (int i = first; i < first + count; ++i) exporter.Add(Named(absl::StrCat(i)));
}

// As short as tests want them.
SpanExporterOptions Quick() {
  return {.queue_capacity = 8,
          .batch_size = 3,
          .batch_delay = absl::Milliseconds(1),
          .first_pause = absl::Milliseconds(1),
          .longest_pause = absl::Milliseconds(2)};
}

TEST(SpanExporterTest, SpansArriveInOrder) {
  Collector collector;
  SpanExporter exporter(Quick(), collector.Connect());
  AddNumbered(exporter, 0, 3);
  ASSERT_TRUE(collector.AwaitSpans(3));
  AddNumbered(exporter, 3, 1);
  ASSERT_TRUE(collector.AwaitSpans(4));
  exporter.Stop(absl::Seconds(20));
  EXPECT_THAT(collector.names(), ElementsAre("0", "1", "2", "3"));
  EXPECT_EQ(exporter.counts().exported, 4);
}

TEST(SpanExporterTest, WhatWaitsIsSentTogetherAndNoMoreThanABatchAtATime) {
  Collector collector;
  collector.Close();
  SpanExporter exporter(Quick(), collector.Connect());
  AddNumbered(exporter, 0, 1);
  ASSERT_TRUE(collector.AwaitTries(1));
  AddNumbered(exporter, 1, 7);
  collector.Open();
  exporter.Stop(absl::Seconds(20));
  EXPECT_THAT(collector.sizes(), ElementsAre(1, 3, 3, 1));
}

TEST(SpanExporterTest, ACollectorThatDoesNotAnswerHoldsUpNobodyAndWhatFindsNoRoomIsCounted) {
  Collector collector;
  collector.Close();
  SpanExporter exporter(Quick(), collector.Connect());
  AddNumbered(exporter, 0, 1);
  ASSERT_TRUE(collector.AwaitTries(1));
  // Returns, although nothing is taken.
  AddNumbered(exporter, 1, 100);
  EXPECT_EQ(exporter.counts().queue_full, 100 - 8);
  EXPECT_EQ(exporter.counts().exported, 0);
  collector.Open();
  exporter.Stop(absl::Seconds(20));
  EXPECT_EQ(exporter.counts().exported, 1 + 8);
}

TEST(SpanExporterTest, ACollectorThatIsAwayIsTriedAgain) {
  Collector collector;
  int failures = 3;
  collector.AnswerWith([&]() -> absl::StatusOr<size_t> {
    if (failures-- > 0) return absl::UnavailableError("away");
    return 0;
  });
  SpanExporter exporter(Quick(), collector.Connect());
  AddNumbered(exporter, 0, 2);
  ASSERT_TRUE(collector.AwaitSpans(2));
  exporter.Stop(absl::Seconds(20));
  EXPECT_THAT(collector.names(), ElementsAre("0", "1"));
  EXPECT_EQ(exporter.counts().undelivered, 0);
}

TEST(SpanExporterTest, SpansThatNobodyTakesInTimeAreDroppedAndCounted) {
  Collector collector;
  collector.AnswerWith([]() -> absl::StatusOr<size_t> { return absl::UnavailableError("away"); });
  SpanExporterOptions options = Quick();
  options.give_up_after = absl::ZeroDuration();
  SpanExporter exporter(options, collector.Connect());
  AddNumbered(exporter, 0, 3);
  // The second batch is tried when the first is given up.
  AddNumbered(exporter, 3, 3);
  ASSERT_TRUE(collector.AwaitTries(2));
  EXPECT_GE(exporter.counts().undelivered, 1);
  exporter.Stop(absl::Seconds(20));
  EXPECT_EQ(exporter.counts().undelivered, 6);
}

TEST(SpanExporterTest, SpansThatAreRefusedAreNotSentAgain) {
  Collector collector;
  collector.AnswerWith([]() -> absl::StatusOr<size_t> { return absl::InvalidArgumentError("no"); });
  SpanExporterOptions options = Quick();
  options.batch_delay = absl::Seconds(20);
  SpanExporter exporter(options, collector.Connect());
  AddNumbered(exporter, 0, 3);
  ASSERT_TRUE(collector.AwaitTries(1));
  collector.AnswerWith([] { return size_t{2}; });
  AddNumbered(exporter, 3, 3);
  ASSERT_TRUE(collector.AwaitSpans(3));
  exporter.Stop(absl::Seconds(20));
  EXPECT_THAT(collector.names(), ElementsAre("3", "4", "5"));
  EXPECT_EQ(exporter.counts().refused, 3 + 2);
  EXPECT_EQ(exporter.counts().exported, 1);
}

TEST(SpanExporterTest, WhatWaitsIsSentAtTheEnd) {
  Collector collector;
  SpanExporterOptions options = Quick();
  options.batch_delay = absl::Hours(1);
  SpanExporter exporter(options, collector.Connect());
  AddNumbered(exporter, 0, 2);
  exporter.Stop(absl::Seconds(20));
  EXPECT_THAT(collector.names(), ElementsAre("0", "1"));
  exporter.Add(Named("late"));
  exporter.Stop(absl::Seconds(20));
  EXPECT_EQ(exporter.counts().exported, 2);
  EXPECT_EQ(exporter.counts().queue_full, 1);
}

TEST(SpanExporterTest, TheEndWaitsForACollectorAsLongAsItMay) {
  Collector collector;
  collector.Close();
  SpanExporter exporter(Quick(), collector.Connect());
  AddNumbered(exporter, 0, 4);
  ASSERT_TRUE(collector.AwaitTries(1));
  const absl::Time start = absl::Now();
  exporter.Stop(absl::Milliseconds(50));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(50));
  EXPECT_EQ(exporter.counts().undelivered, 4);
}

TEST(SpanExporterTest, TheEndDoesNotWaitForACollectorThatWasNotThereBefore) {
  Collector collector;
  collector.AnswerWith([]() -> absl::StatusOr<size_t> { return absl::UnavailableError("away"); });
  SpanExporter exporter(Quick(), collector.Connect());
  AddNumbered(exporter, 0, 4);
  ASSERT_TRUE(collector.AwaitTries(2));
  collector.Close();
  const int tries = collector.tries();
  ASSERT_TRUE(collector.AwaitTries(tries + 1));
  const absl::Time start = absl::Now();
  exporter.Stop(absl::Hours(1));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_EQ(exporter.counts().undelivered, 4);
}

}  // namespace
}  // namespace penstock
