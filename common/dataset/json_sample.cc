#include "common/dataset/json_sample.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// Takes the events of the parser; no document is built. A handler returns false to end the parse with
// `error_` set.
class SampleHandler final : public nlohmann::json_sax<Json> {
 public:
  absl::StatusOr<TokenSample> Take() {
    if (!error_.empty()) return absl::InvalidArgumentError(error_);
    const bool whole = has_[kTokens] || has_[kText];
    const int forms = int{has_[kTokens]} + int{has_[kText]} + int{has_[kInput] || has_[kTarget]};
    if (forms != 1 || (!whole && !(has_[kInput] && has_[kTarget])))
      return absl::InvalidArgumentError(
          "expected one of \"tokens\", \"text\", or both \"input\" and \"target\"");
    TokenSample sample;
    sample.target = std::move(values_[has_[kTokens] ? kTokens : has_[kText] ? kText : kTarget]);
    sample.input = std::move(values_[kInput]);
    return sample;
  }

  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    field_ = name == "tokens"   ? kTokens
             : name == "input"  ? kInput
             : name == "target" ? kTarget
             : name == "text"   ? kText
                                : kOther;
    if (field_ == kOther) return true;
    if (has_[field_]) return Fail(absl::StrCat("field \"", name, "\" appears twice"));
    has_[field_] = true;
    return true;
  }

  bool start_object(std::size_t) override { return Enter(/*is_object=*/true); }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t) override { return Enter(/*is_object=*/false); }
  bool end_array() override { return Leave(); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!InTokens()) return Other("a number");
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int32_t>::max()))
      return Fail(absl::StrCat("token ", value, " is too large"));
    values_[field_].push_back(static_cast<int32_t>(value));
    return true;
  }
  bool number_integer(number_integer_t value) override {
    if (!InTokens()) return Other("a number");
    return Fail(absl::StrCat("token ", value, " is negative"));
  }
  bool string(string_t& value) override {
    if (depth_ != 1 || field_ != kText) return Other("a string");
    for (char byte : value) values_[kText].push_back(static_cast<unsigned char>(byte));
    return true;
  }
  bool number_float(number_float_t, const string_t&) override { return Other("a fraction"); }
  bool null() override { return Other("null"); }
  bool boolean(bool) override { return Other("a boolean"); }
  bool binary(binary_t&) override { return Other("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("column ", position, ": this is not JSON"));
  }

 private:
  enum FieldName { kTokens, kInput, kTarget, kText, kOther };

  bool Fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  // Inside the list of one of the fields of token ids.
  bool InTokens() const { return depth_ == 2 && field_ <= kTarget; }

  // A value that is no token: fine inside fields that are ignored.
  bool Other(const char* what) {
    if (depth_ == 0) return Fail(absl::StrCat("found ", what, ", expected an object"));
    if (field_ == kOther) return true;
    return Fail(absl::StrCat("found ", what, " in field \"", NameOf(field_), "\", expected ",
                             field_ == kText ? "a string" : "a list of token ids"));
  }

  bool Enter(bool is_object) {
    if (depth_ == 0 && !is_object) return Other("a list");
    const bool is_list_of_tokens = depth_ == 1 && !is_object && field_ <= kTarget;
    if (depth_ > 0 && !is_list_of_tokens && !Other(is_object ? "an object" : "a list")) return false;
    ++depth_;
    return true;
  }
  bool Leave() {
    --depth_;
    return true;
  }

  static const char* NameOf(FieldName field) {
    static constexpr const char* kNames[] = {"tokens", "input", "target", "text", ""};
    return kNames[field];
  }

  int depth_ = 0;
  FieldName field_ = kOther;
  bool has_[4] = {};
  std::vector<int32_t> values_[4];
  std::string error_;
};

}  // namespace

absl::StatusOr<TokenSample> ParseJsonSample(std::string_view line) {
  SampleHandler handler;
  Json::sax_parse(line.begin(), line.end(), &handler);
  return handler.Take();
}

}  // namespace penstock
