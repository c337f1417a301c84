#include "common/tracing/otlp_request.h"

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/version/version.h"

namespace penstock {
namespace {

namespace otlp = opentelemetry::proto;

constexpr size_t kMostText = 1024;

// A text of protobuf must be UTF-8, or a collector refuses all spans that are sent with it: a cut may halve a
// character, and an error may quote what somebody sent.
std::string Text(absl::string_view text) {
  std::string result(text.substr(0, kMostText));
  for (char& byte : result) {
    if (static_cast<unsigned char>(byte) >= 0x80) byte = '?';
  }
  return result;
}

void SetValue(const SpanValue& value, otlp::common::v1::AnyValue* out) {
  std::visit(
      [out](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::string>) {
          out->set_string_value(Text(held));
        } else if constexpr (std::is_same_v<Held, int64_t>) {
          out->set_int_value(held);
        } else if constexpr (std::is_same_v<Held, double>) {
          out->set_double_value(held);
        } else {
          out->set_bool_value(held);
        }
      },
      value);
}

template <typename Attributes>
void AddAttributes(const std::vector<SpanAttribute>& attributes, Attributes* out) {
  for (const SpanAttribute& attribute : attributes) {
    otlp::common::v1::KeyValue* const entry = out->Add();
    entry->set_key(attribute.key);
    SetValue(attribute.value, entry->mutable_value());
  }
}

uint64_t UnixNanoseconds(absl::Time time) { return static_cast<uint64_t>(absl::ToUnixNanos(time)); }

void AddLink(const SpanLink& link, otlp::trace::v1::Span* out) {
  otlp::trace::v1::Span::Link* const entry = out->add_links();
  entry->set_trace_id(link.trace_id);
  entry->set_span_id(link.span_id);
  entry->set_flags(link.flags);
  entry->set_trace_state(Text(link.state));
}

void SetStatus(const absl::Status& status, otlp::trace::v1::Span* out) {
  if (status.ok()) return;
  out->mutable_status()->set_code(otlp::trace::v1::Status::STATUS_CODE_ERROR);
  out->mutable_status()->set_message(Text(status.ToString()));
}

void FillSpan(const TraceSpan& span, otlp::trace::v1::Span* out) {
  out->set_trace_id(span.trace_id);
  out->set_span_id(span.span_id);
  out->set_parent_span_id(span.parent_id);
  out->set_name(span.name);
  out->set_kind(span.kind == SpanKind::kServer ? otlp::trace::v1::Span::SPAN_KIND_SERVER
                                               : otlp::trace::v1::Span::SPAN_KIND_INTERNAL);
  out->set_start_time_unix_nano(UnixNanoseconds(span.start));
  out->set_end_time_unix_nano(UnixNanoseconds(span.end));
  AddAttributes(span.attributes, out->mutable_attributes());
  for (const SpanLink& link : span.links) AddLink(link, out);
  SetStatus(span.status, out);
}

}  // namespace

otlp::collector::trace::v1::ExportTraceServiceRequest ToOtlp(const std::vector<TraceSpan>& spans,
                                                             const std::vector<SpanAttribute>& resource) {
  otlp::collector::trace::v1::ExportTraceServiceRequest request;
  otlp::trace::v1::ResourceSpans* const of_process = request.add_resource_spans();
  AddAttributes(resource, of_process->mutable_resource()->mutable_attributes());
  otlp::trace::v1::ScopeSpans* const of_scope = of_process->add_scope_spans();
  of_scope->mutable_scope()->set_name("penstock");
  of_scope->mutable_scope()->set_version(std::string(Version()));
  for (const TraceSpan& span : spans) FillSpan(span, of_scope->add_spans());
  return request;
}

}  // namespace penstock
