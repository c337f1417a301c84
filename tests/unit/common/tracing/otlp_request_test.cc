#include "common/tracing/otlp_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace penstock {
namespace {

namespace otlp = opentelemetry::proto;
using ::testing::SizeIs;

TraceSpan PlanSpan() {
  return {.trace_id = std::string(16, 't'),
          .span_id = std::string(8, 's'),
          .parent_id = std::string(8, 'p'),
          .name = "plan",
          .start = absl::FromUnixNanos(1'800'000'000'000'000'001),
          .end = absl::FromUnixNanos(1'800'000'000'000'000'002)};
}

otlp::trace::v1::Span Converted(const TraceSpan& span) {
  return ToOtlp({span}, {}).resource_spans(0).scope_spans(0).spans(0);
}

TEST(OtlpRequestTest, OneRequestHasTheSpansOfThisProcessAndSaysWhatItIs) {
  const auto request = ToOtlp({PlanSpan(), PlanSpan()}, {{"service.name", "penstock-planner"}});
  ASSERT_THAT(request.resource_spans(), SizeIs(1));
  const auto& resource = request.resource_spans(0).resource();
  ASSERT_THAT(resource.attributes(), SizeIs(1));
  EXPECT_EQ(resource.attributes(0).key(), "service.name");
  EXPECT_EQ(resource.attributes(0).value().string_value(), "penstock-planner");
  ASSERT_THAT(request.resource_spans(0).scope_spans(), SizeIs(1));
  EXPECT_EQ(request.resource_spans(0).scope_spans(0).scope().name(), "penstock");
  EXPECT_THAT(request.resource_spans(0).scope_spans(0).spans(), SizeIs(2));
}

TEST(OtlpRequestTest, ASpanHasIdsAndTimes) {
  const otlp::trace::v1::Span span = Converted(PlanSpan());
  EXPECT_EQ(span.trace_id(), std::string(16, 't'));
  EXPECT_EQ(span.span_id(), std::string(8, 's'));
  EXPECT_EQ(span.parent_span_id(), std::string(8, 'p'));
  EXPECT_EQ(span.name(), "plan");
  EXPECT_EQ(span.kind(), otlp::trace::v1::Span::SPAN_KIND_INTERNAL);
  EXPECT_EQ(span.start_time_unix_nano(), 1'800'000'000'000'000'001);
  EXPECT_EQ(span.end_time_unix_nano(), 1'800'000'000'000'000'002);
  EXPECT_FALSE(span.has_status());
}

TEST(OtlpRequestTest, AttributesKeepTheirTypes) {
  TraceSpan plain = PlanSpan();
  plain.attributes = {{"text", "mix"}, {"number", int64_t{7}}, {"share", 0.5}, {"flag", true}};
  const otlp::trace::v1::Span span = Converted(plain);
  ASSERT_THAT(span.attributes(), SizeIs(4));
  EXPECT_EQ(span.attributes(0).value().string_value(), "mix");
  EXPECT_EQ(span.attributes(1).value().int_value(), 7);
  EXPECT_EQ(span.attributes(2).value().double_value(), 0.5);
  EXPECT_TRUE(span.attributes(3).value().bool_value());
}

TEST(OtlpRequestTest, AFailureIsAnErrorWithItsText) {
  TraceSpan failed = PlanSpan();
  failed.status = absl::ResourceExhaustedError("no plan fits");
  const otlp::trace::v1::Span span = Converted(failed);
  EXPECT_EQ(span.status().code(), otlp::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(span.status().message(), "RESOURCE_EXHAUSTED: no plan fits");
}

TEST(OtlpRequestTest, ALinkNamesTheSpanOfACaller) {
  TraceSpan linked = PlanSpan();
  linked.kind = SpanKind::kServer;
  linked.links = {
      {.trace_id = std::string(16, 'a'), .span_id = std::string(8, 'b'), .flags = 1, .state = "x=y"}};
  const otlp::trace::v1::Span span = Converted(linked);
  EXPECT_EQ(span.kind(), otlp::trace::v1::Span::SPAN_KIND_SERVER);
  ASSERT_THAT(span.links(), SizeIs(1));
  EXPECT_EQ(span.links(0).trace_id(), std::string(16, 'a'));
  EXPECT_EQ(span.links(0).span_id(), std::string(8, 'b'));
  EXPECT_EQ(span.links(0).flags(), 1);
  EXPECT_EQ(span.links(0).trace_state(), "x=y");
}

TEST(OtlpRequestTest, TextsAreShortAndCannotMakeARequestUnreadable) {
  TraceSpan long_text = PlanSpan();
  long_text.attributes = {{"text", std::string(5000, 'x')}, {"bytes", "a\xff\xc3"}};
  long_text.status = absl::InternalError(std::string(5000, 'y'));
  const otlp::trace::v1::Span span = Converted(long_text);
  EXPECT_EQ(span.attributes(0).value().string_value().size(), 1024);
  EXPECT_EQ(span.attributes(1).value().string_value(), "a??");
  EXPECT_EQ(span.status().message().size(), 1024);
}

}  // namespace
}  // namespace penstock
