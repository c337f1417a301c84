#include "common/dataset/json_sample.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

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
    TokenSample sample;
    sample.target = std::move(values_[has_[kTokens] ? kTokens : has_[kText] ? kText : kTarget]);
    sample.input = std::move(values_[kInput]);
    if (has_[kLabels] || has_[kLossMask] || has_[kWeights]) {
      PENSTOCK_ASSIGN_OR_RETURN(sample.weights, TakeWeights(sample.target));
      // An encoder's input is apart.
      if (has_[kTokens]) MoveInput(sample);
    }
    if (has_[kWeight]) MultiplyWeights(weight_, sample);
    if (!sample.weights.empty() && std::ranges::all_of(sample.weights, IsZero))
      return absl::InvalidArgumentError("no token is learnt: all are masked, or weigh 0; leave the line out");
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
    if (InWeights()) return TakeWeight(static_cast<double>(value));
    if (!InTokens()) return Other("a number");
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int32_t>::max()))
      return Fail(absl::StrCat("token ", value, " is too large"));
    values_[field_].push_back(static_cast<int32_t>(value));
    return true;
  }
  bool number_integer(number_integer_t value) override {
    if (InWeights()) return TakeWeight(static_cast<double>(value));
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
  bool number_float(number_float_t value, const string_t&) override {
    return InWeights() ? TakeWeight(value) : Other("a fraction");
  }
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
  enum FieldName { kTokens, kInput, kTarget, kLabels, kLossMask, kWeights, kText, kWeight, kOther };
  // The label of a token that is not learnt, of PyTorch's cross-entropy and all that is built on it.
  static constexpr int32_t kNotLearnt = -100;

  static FieldName FieldOf(const std::string& name) {
    if (name == "tokens" || name == "input_ids") return kTokens;
    if (name == "input") return kInput;
    if (name == "target") return kTarget;
    if (name == "labels") return kLabels;
    if (name == "loss_mask" || name == "assistant_masks" || name == "completion_mask") return kLossMask;
    if (name == "weights") return kWeights;
    if (name == "weight") return kWeight;
    return name == "text" ? kText : kOther;
  }

  static bool IsZero(float weight) { return weight == 0; }

  absl::Status CheckCount(FieldName field, size_t count, size_t tokens) const {
    const std::string name = absl::StrCat("\"", NameOf(field), "\"");
    if (has_[kText])
      return absl::InvalidArgumentError(
          absl::StrCat(name, " needs tokens: \"tokens\" or \"input_ids\", or \"input\" and \"target\""));
    if (count == tokens) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        name, " has ", count, " entries and there are ", tokens,
        has_[kTokens]
            ? " tokens; where they are of an encoder-decoder's target, give \"input\" and \"target\""
            : " tokens in \"target\", whose they are"));
  }

  // Of each token that is not input.
  absl::StatusOr<std::vector<float>> TakeWeights(const std::vector<int32_t>& tokens) {
    std::vector<float> weights(tokens.size(), 1);
    for (const FieldName field : {kLabels, kLossMask}) {
      if (!has_[field]) continue;
      const std::vector<int32_t>& marks = values_[field];
      PENSTOCK_RETURN_IF_ERROR(CheckCount(field, marks.size(), tokens.size()));
      const int32_t not_learnt = field == kLabels ? kNotLearnt : 0;
      for (size_t i = 0; i < marks.size(); ++i) {
        if (marks[i] != not_learnt && marks[i] != (field == kLabels ? tokens[i] : 1)) {
          return absl::InvalidArgumentError(
              absl::StrCat("\"", NameOf(field), "\": entry ", i, " is ", marks[i], ", expected ",
                           field == kLabels ? "the token itself or -100" : "0 or 1"));
        }
        if (marks[i] == not_learnt) weights[i] = 0;
      }
    }
    if (!has_[kWeights]) return weights;
    PENSTOCK_RETURN_IF_ERROR(CheckCount(kWeights, weights_.size(), tokens.size()));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] *= weights_[i];
    return weights;
  }

  // What comes before the first token that is learnt is input.
  static void MoveInput(TokenSample& sample) {
    const auto learnt = std::ranges::find_if_not(sample.weights, IsZero);
    const auto count = learnt - sample.weights.begin();
    // Nothing is learnt, which is refused.
    if (learnt == sample.weights.end()) return;
    sample.input.assign(sample.target.begin(), sample.target.begin() + count);
    sample.target.erase(sample.target.begin(), sample.target.begin() + count);
    sample.weights.erase(sample.weights.begin(), learnt);
    if (std::ranges::all_of(sample.weights, [](float weight) { return weight == 1; })) sample.weights.clear();
  }

  bool TakeWeight(double value) {
    const absl::StatusOr<float> weight = CheckedWeight(NameOf(field_), value);
    if (!weight.ok()) return Fail(std::string(weight.status().message()));
    if (field_ == kWeight)
      weight_ = *weight;
    else
      weights_.push_back(*weight);
    return true;
  }

  bool Fail(std::string message) {
    error_ = std::move(message);
    return false;
  }

  // Inside the list of one of the fields of token ids, and where a weight may stand.
  bool InTokens() const { return depth_ == 2 && field_ <= kLossMask; }
  bool InWeights() const { return (depth_ == 2 && field_ == kWeights) || (depth_ == 1 && field_ == kWeight); }

  // A value that is no token: fine inside fields that are ignored.
  bool Other(const char* what) {
    if (depth_ == 0) return Fail(absl::StrCat("found ", what, ", expected an object"));
    if (field_ == kOther) return true;
    return Fail(absl::StrCat("found ", what, " in field \"", NameOf(field_), "\", expected ",
                             field_ == kText      ? "a string"
                             : field_ == kWeight  ? "a number"
                             : field_ == kWeights ? "a list of numbers"
                                                  : "a list of token ids"));
  }

  bool Enter(bool is_object) {
    if (depth_ == 0 && !is_object) return Other("a list");
    const bool is_list_of_tokens = depth_ == 1 && !is_object && field_ <= kWeights;
    if (depth_ > 0 && !is_list_of_tokens && !Other(is_object ? "an object" : "a list")) return false;
    ++depth_;
    return true;
  }
  bool Leave() {
    --depth_;
    return true;
  }

  static const char* NameOf(FieldName field) {
    static constexpr const char* kNames[] = {"tokens",  "input", "target", "labels", "loss_mask",
                                             "weights", "text",  "weight", ""};
    return kNames[field];
  }

  int depth_ = 0;
  FieldName field_ = kOther;
  bool has_[kOther] = {};
  std::vector<int32_t> values_[kOther];
  std::vector<float> weights_;
  float weight_ = 1;
  std::string error_;
};

}  // namespace

absl::Status CheckMeansNothing(const std::string& field) {
  static constexpr const char* kMeanSomething[] = {"loss_weight", "loss_weights", "token_weights", "mask",
                                                   "loss_masks"};
  if (std::ranges::find(kMeanSomething, field) == std::end(kMeanSomething)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("field \"", field,
                   "\" is not known: leave it out, or call it \"weights\" (a number for each token), "
                   "\"weight\" (one for the sample), \"labels\" or \"loss_mask\""));
}

absl::StatusOr<float> CheckedWeight(const std::string& field, double weight) {
  const auto narrow = static_cast<float>(weight);
  if (std::isfinite(narrow) && narrow >= 0) return narrow;
  return absl::InvalidArgumentError(
      absl::StrCat("field \"", field, "\": weight ", weight, ", expected a number of at least 0"));
}

void MultiplyWeights(float weight, TokenSample& sample) {
  if (weight == 1) return;
  if (sample.weights.empty()) sample.weights.assign(sample.target.size(), 1);
  for (float& each : sample.weights) each *= weight;
}

absl::StatusOr<TokenSample> ParseJsonSample(std::string_view line) {
  SampleHandler handler;
  Json::sax_parse(line.begin(), line.end(), &handler);
  return handler.Take();
}

}  // namespace penstock
