// The fields of a Hugging Face config.json, read one by one, so that what nobody has read is known to be
// unknown: a field that changes the model is never passed over.
//
//   ConfigFields fields("llama/config.json", json);
//   spec.set_hidden(fields.Count("hidden_size"));
//   fields.Require("hidden_act", "silu");
//   fields.MeansNothing({"use_cache", "bos_token_id"});
//   PENSTOCK_RETURN_IF_ERROR(fields.Finish());   // the first error, or the first field that nobody read
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"

namespace penstock::cli {

class ConfigFields {
 public:
  // `json` is an object and outlives this one. `name` begins every error: a path, or a path and a field.
  ConfigFields(std::string name, const nlohmann::json& json) : name_(std::move(name)), json_(json) {}

  // Missing and null is the fallback, and without one an error; so is what is no number above 0, no number of
  // at least 0, no boolean, no text. After an error all of them return something, and Finish tells.
  uint32_t Count(const std::string& field, std::optional<uint32_t> fallback = std::nullopt);
  double Number(const std::string& field, std::optional<double> fallback = std::nullopt);
  bool Flag(const std::string& field, std::optional<bool> fallback = std::nullopt);
  std::string Text(const std::string& field, std::optional<std::string> fallback = std::nullopt);
  // Of a list; empty where it is missing or null.
  nlohmann::json List(const std::string& field);
  // Of an object; null where it is missing or null.
  const nlohmann::json* Object(const std::string& field);

  // The field, where it is there and not null, has this value: the only one that is known.
  void Require(const std::string& field, const nlohmann::json& value);
  // So has each element of a list.
  void RequireAll(const std::string& field, const nlohmann::json& value);
  // These do not change what is computed in training.
  void MeansNothing(std::initializer_list<const char*> fields);
  // For values that do not go together.
  void Refuse(const std::string& field, const std::string& why);
  bool Has(const std::string& field) const;
  // It is there, maybe as null: for fields whose null is not their default.
  bool Names(const std::string& field) const { return json_.contains(field); }

  // INVALID_ARGUMENT, naming file and field.
  absl::Status Finish();

 private:
  // Null where it is missing or null.
  const nlohmann::json* Look(const std::string& field);
  template <typename Value>
  Value Missing(const std::string& field, const std::optional<Value>& fallback);

  std::string name_;
  const nlohmann::json& json_;
  std::set<std::string> read_;
  absl::Status status_;
};

}  // namespace penstock::cli
