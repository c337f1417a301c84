#include "common/dataset/json_sample.h"

#include <algorithm>
#include <iterator>
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
          "expected one of \"tokens\" (or \"input_ids\"), \"text\", or both \"input\" and \"target\"");
    if (has_[kLabels] && has_[kLossMask])
      return absl::InvalidArgumentError("\"labels\" and \"loss_mask\" say the same: one of them is enough");
    if (has_[kLabels] || has_[kLossMask]) return TakeLearnt();
    TokenSample sample;
    sample.target = std::move(values_[has_[kTokens] ? kTokens : has_[kText] ? kText : kTarget]);
    sample.input = std::move(values_[kInput]);
    return sample;
  }

  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    field_ = FieldOf(name);
    if (field_ == kOther) {
      const absl::Status nothing = CheckMeansNothing(name);
      return nothing.ok() || Fail(std::string(nothing.message()));
    }
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
    if (field_ == kLabels && value == kNotLearnt) {
      values_[kLabels].push_back(kNotLearnt);
      return true;
    }
    return Fail(absl::StrCat("token ", value, " is negative"));
  }
  bool string(string_t& value) override {
    if (depth_ != 1 || field_ != kText) return Other("a string");
    for (char byte : value) values_[kText].push_back(static_cast<unsigned char>(byte));
    return true;
  }
  bool number_float(number_float_t, const string_t&) override { return Other("a fraction"); }
  bool null() override { return Other("null"); }
  bool boolean(bool value) override {
    if (!InTokens() || field_ != kLossMask) return Other("a boolean");
    values_[kLossMask].push_back(value ? 1 : 0);
    return true;
  }
  bool binary(binary_t&) override { return Other("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("column ", position, ": this is not JSON"));
  }

 private:
  enum FieldName { kTokens, kInput, kTarget, kLabels, kLossMask, kText, kOther };
  // The label of a token that is not learnt, of PyTorch's cross-entropy and all that is built on it.
  static constexpr int32_t kNotLearnt = -100;

  static FieldName FieldOf(const std::string& name) {
    if (name == "tokens" || name == "input_ids") return kTokens;
    if (name == "input") return kInput;
    if (name == "target") return kTarget;
    if (name == "labels") return kLabels;
    if (name == "loss_mask") return kLossMask;
    return name == "text" ? kText : kOther;
  }

  // What is learnt has to be the end of the tokens: what comes before it is input.
  absl::StatusOr<TokenSample> TakeLearnt() {
    const FieldName field = has_[kLabels] ? kLabels : kLossMask;
    const std::vector<int32_t>& marks = values_[field];
    const std::vector<int32_t>& tokens = values_[kTokens];
    const std::string name = absl::StrCat("\"", NameOf(field), "\"");
    if (!has_[kTokens])
      return absl::InvalidArgumentError(absl::StrCat(name, " needs \"tokens\" or \"input_ids\""));
    if (marks.size() != tokens.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has ", marks.size(), " entries and there are ", tokens.size(),
                       " tokens; an encoder-decoder learns from \"input\" and \"target\""));
    }
    const int32_t not_learnt = field == kLabels ? kNotLearnt : 0;
    size_t begin = 0;
    while (begin < marks.size() && marks[begin] == not_learnt) ++begin;
    if (begin == marks.size()) return absl::InvalidArgumentError(absl::StrCat(name, ": no token is learnt"));
    for (size_t i = begin; i < marks.size(); ++i) {
      if (marks[i] == (field == kLabels ? tokens[i] : 1)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": entry ", i, " is ", marks[i], "; after the first token that is learnt all have to be (",
          field == kLabels ? "their own label" : "1", "): split the sample there"));
    }
    TokenSample sample;
    sample.input.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(begin));
    sample.target.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.end());
    return sample;
  }

  bool Fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  // Inside the list of one of the fields of token ids.
  bool InTokens() const { return depth_ == 2 && field_ <= kLossMask; }

  // A value that is no token: fine inside fields that are ignored.
  bool Other(const char* what) {
    if (depth_ == 0) return Fail(absl::StrCat("found ", what, ", expected an object"));
    if (field_ == kOther) return true;
    return Fail(absl::StrCat("found ", what, " in field \"", NameOf(field_), "\", expected ",
                             field_ == kText ? "a string" : "a list of token ids"));
  }

  bool Enter(bool is_object) {
    if (depth_ == 0 && !is_object) return Other("a list");
    const bool is_list_of_tokens = depth_ == 1 && !is_object && field_ <= kLossMask;
    if (depth_ > 0 && !is_list_of_tokens && !Other(is_object ? "an object" : "a list")) return false;
    ++depth_;
    return true;
  }
  bool Leave() {
    --depth_;
    return true;
  }

  static const char* NameOf(FieldName field) {
    static constexpr const char* kNames[] = {"tokens", "input", "target", "labels", "loss_mask", "text", ""};
    return kNames[field];
  }

  int depth_ = 0;
  FieldName field_ = kOther;
  bool has_[kOther] = {};
  std::vector<int32_t> values_[kOther];
  std::string error_;
};

}  // namespace

absl::Status CheckMeansNothing(const std::string& field) {
  static constexpr const char* kMeanSomething[] = {"weight",        "weights", "loss_weight", "loss_weights",
                                                   "token_weights", "mask",    "loss_masks"};
  if (std::ranges::find(kMeanSomething, field) == std::end(kMeanSomething)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("field \"", field,
                   "\": tokens have no weights here; leave it out, or use \"labels\" or \"loss_mask\""));
}

absl::StatusOr<TokenSample> ParseJsonSample(std::string_view line) {
  SampleHandler handler;
  Json::sax_parse(line.begin(), line.end(), &handler);
  return handler.Take();
}

}  // namespace penstock
