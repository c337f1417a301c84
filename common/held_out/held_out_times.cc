#include "common/held_out/held_out_times.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// job.proto, Mesh.
constexpr uint32_t kMostHeldOutContexts = 1024;

constexpr std::array kParts = {
    std::pair{HeldOutPart::kEncoderLayer, "encoder layer"}, std::pair{HeldOutPart::kLayer, "layer"},
    std::pair{HeldOutPart::kDenseLayer, "dense layer"}, std::pair{HeldOutPart::kHead, "head"}};
constexpr std::array kKinds = {std::pair{HeldOutKind::kForward, "forward"},
                               std::pair{HeldOutKind::kBackward, "backward"},
                               std::pair{HeldOutKind::kBackwardInput, "backward-input"},
                               std::pair{HeldOutKind::kBackwardWeight, "backward-weight"},
                               std::pair{HeldOutKind::kBoth, "forward and backward"}};
constexpr std::array kRecomputes = {std::pair{HeldOutRecompute::kNone, "none"},
                                    std::pair{HeldOutRecompute::kSelective, "selective"},
                                    std::pair{HeldOutRecompute::kFull, "full"}};

template <typename Names, typename Value>
const char* Name(const Names& names, Value value) {
  for (const auto& [named, name] : names)
    if (named == value) return name;
  return "";
}

template <typename Names, typename Value>
bool ReadName(const Names& names, const Json& object, const char* key, Value& value) {
  if (!object.contains(key) || !object[key].is_string()) return false;
  for (const auto& [named, name] : names) {
    if (object[key].get<std::string>() != name) continue;
    value = named;
    return true;
  }
  return false;
}

bool ReadNumber(const Json& object, const char* key, double& value) {
  if (!object.contains(key) || !object[key].is_number()) return false;
  value = object[key].get<double>();
  return true;
}

bool AreNumbers(const Json& numbers) {
  return numbers.is_array() &&
         std::ranges::all_of(numbers, [](const Json& number) { return number.is_number_unsigned(); });
}

// Lengths, and of a divided row its span.
std::optional<HeldOutSample> ReadSample(const Json& numbers) {
  if (!AreNumbers(numbers) || numbers.size() < 2 || numbers.size() > 3) return std::nullopt;
  HeldOutSample sample = {.source = numbers[0].get<uint32_t>(), .target = numbers[1].get<uint32_t>()};
  if (numbers.size() == 3) sample.span = numbers[2].get<uint32_t>();
  return sample;
}

// Without it: a pass of whole rows.
bool ReadContext(const Json& object, HeldOutPass& pass) {
  if (!object.contains("context")) return true;
  const Json& place = object["context"];
  if (!AreNumbers(place) || place.size() != 2) return false;
  pass.context = place[0].get<uint32_t>();
  pass.contexts = place[1].get<uint32_t>();
  return true;
}

// Spans are aligned powers of two, of which the context rank is one.
bool IsShare(const HeldOutPass& pass) {
  if (!std::has_single_bit(pass.contexts) || pass.contexts > kMostHeldOutContexts) return false;
  if (pass.context >= pass.contexts) return false;
  return std::ranges::all_of(pass.samples, [&](const HeldOutSample& sample) {
    return std::has_single_bit(sample.span) &&
           pass.context - pass.context % sample.span + sample.span <= pass.contexts;
  });
}

bool ReadSamples(const Json& object, std::vector<HeldOutSample>& samples) {
  if (!object.contains("samples") || !object["samples"].is_array() || object["samples"].empty()) return false;
  for (const Json& lengths : object["samples"]) {
    const std::optional<HeldOutSample> sample = ReadSample(lengths);
    if (!sample.has_value()) return false;
    samples.push_back(*sample);
  }
  return true;
}

std::optional<HeldOutPass> ReadPass(const Json& object) {
  HeldOutPass pass;
  const bool whole = object.is_object() && ReadName(kParts, object, "part", pass.part) &&
                     ReadName(kKinds, object, "pass", pass.kind) &&
                     ReadName(kRecomputes, object, "recompute", pass.recompute) &&
                     object.contains("packed") && object["packed"].is_boolean() &&
                     ReadSamples(object, pass.samples) && ReadContext(object, pass) && IsShare(pass) &&
                     ReadNumber(object, "loss_tokens", pass.loss_tokens) &&
                     ReadNumber(object, "duration_ns", pass.duration_ns);
  if (!whole) return std::nullopt;
  pass.packed = object["packed"].get<bool>();
  return pass;
}

Json ToObject(const HeldOutPass& pass) {
  Json object = {
      {"part", NameOf(pass.part)},      {"pass", NameOf(pass.kind)}, {"recompute", NameOf(pass.recompute)},
      {"packed", pass.packed},          {"samples", Json::array()},  {"loss_tokens", pass.loss_tokens},
      {"duration_ns", pass.duration_ns}};
  if (pass.contexts > 1) object["context"] = Json::array({pass.context, pass.contexts});
  for (const HeldOutSample& sample : pass.samples) {
    Json& numbers = object["samples"].emplace_back(Json::array({sample.source, sample.target}));
    if (sample.span > 1) numbers.push_back(sample.span);
  }
  return object;
}

}  // namespace

const char* NameOf(HeldOutPart part) { return Name(kParts, part); }
const char* NameOf(HeldOutKind kind) { return Name(kKinds, kind); }
const char* NameOf(HeldOutRecompute recompute) { return Name(kRecomputes, recompute); }

std::string ToJson(const HeldOutTimes& times) {
  Json json = {{"disturbance", times.disturbance}, {"passes", Json::array()}};
  for (const HeldOutPass& pass : times.passes) json["passes"].push_back(ToObject(pass));
  return json.dump(1) + "\n";
}

absl::StatusOr<HeldOutTimes> HeldOutTimesFromJson(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const bool whole = json.is_object() && json.contains("disturbance") && json["disturbance"].is_string() &&
                     json.contains("passes") && json["passes"].is_array();
  if (!whole) return absl::InvalidArgumentError("these are no times of held-out passes");
  HeldOutTimes times{.passes = {}, .disturbance = json["disturbance"].get<std::string>()};
  for (const Json& object : json["passes"]) {
    const std::optional<HeldOutPass> pass = ReadPass(object);
    if (!pass.has_value())
      return absl::InvalidArgumentError(absl::StrCat("passes[", times.passes.size(), "] is incomplete"));
    times.passes.push_back(*pass);
  }
  return times;
}

}  // namespace penstock
