#include "planner/cli/up/run_record.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kFormat = 2;
constexpr const char* kAutoTune = "auto_tune";

std::string RunRecordFile(const std::string& run_dir) { return absl::StrCat(run_dir, "/run.json"); }

absl::Status Wrong(const std::string& file, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", file, "' does not say what a run was started with: ", what));
}

template <typename Number>
bool ReadNumber(const json& object, const char* key, Number& number) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return false;
  const auto value = found->get<uint64_t>();
  number = static_cast<Number>(value);
  return value <= std::numeric_limits<Number>::max();
}

// A run of one dataset has none, and so have runs of before mixtures.
bool ParseMix(const json& object, std::vector<MixRecord>& mix) {
  const json tasks = object.value("mix", json::array());
  if (!tasks.is_array()) return false;
  for (const json& task : tasks) {
    const bool whole = task.is_object() && task.contains("task") && task["task"].is_string() &&
                       task.contains("weight") && task["weight"].is_number();
    if (!whole) return false;
    mix.push_back({.task = task["task"], .weight = task["weight"]});
  }
  return true;
}

std::optional<DataRecord> ParseData(const json& object) {
  DataRecord data;
  const bool whole =
      object.is_object() && ReadNumber(object, "samples", data.samples) &&
      ReadNumber(object, "crc32", data.crc32) && ReadNumber(object, "global_batch", data.global_batch) &&
      ReadNumber(object, "max_length", data.max_length) && ReadNumber(object, "max_input", data.max_input) &&
      ReadNumber(object, "max_target", data.max_target) && object.contains("cut") &&
      object["cut"].is_string() && ParseMix(object, data.mix);
  if (whole) data.cut = object["cut"];
  return whole ? std::optional(data) : std::nullopt;
}

ordered_json PrintData(const DataRecord& data) {
  ordered_json json = {{"samples", data.samples},
                       {"crc32", data.crc32},
                       {"global_batch", data.global_batch},
                       {"max_length", data.max_length},
                       {"max_input", data.max_input},
                       {"max_target", data.max_target},
                       {"cut", data.cut}};
  for (const MixRecord& task : data.mix)
    json["mix"].push_back({{"task", task.task}, {"weight", task.weight}});
  return json;
}

std::optional<FlagValues> ParseFlags(const json& object) {
  if (!object.is_object()) return std::nullopt;
  FlagValues flags;
  for (const auto& [name, values] : object.items()) {
    if (!values.is_array()) return std::nullopt;
    for (const json& value : values) {
      if (!value.is_string()) return std::nullopt;
      flags[name].push_back(value.get<std::string>());
    }
  }
  return flags;
}

absl::Status AddToRecord(const std::string& run_dir, const char* key, const ordered_json& value) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(RunRecordFile(run_dir)));
  ordered_json object = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  object[key] = value;
  return WriteFileAtomically(RunRecordFile(run_dir), object.dump(1) + "\n");
}

// A number of a run by the flag that sets it.
struct Setting {
  const char* flag;
  double (*of)(const RunRecord&);
};

const std::vector<Setting>& Settings() {
  static const auto* settings = new std::vector<Setting>{
      {"global-batch", [](const RunRecord& r) { return static_cast<double>(r.data.global_batch); }},
      {"max-length", [](const RunRecord& r) { return static_cast<double>(r.data.max_length); }},
      {"max-input", [](const RunRecord& r) { return static_cast<double>(r.data.max_input); }},
      {"max-target", [](const RunRecord& r) { return static_cast<double>(r.data.max_target); }},
      {"lr", [](const RunRecord& r) { return r.job.training().learning_rate().peak(); }},
      {"min-lr", [](const RunRecord& r) { return r.job.training().learning_rate().minimum(); }},
      {"warmup",
       [](const RunRecord& r) {
         return static_cast<double>(r.job.training().learning_rate().warmup_iterations());
       }},
      {"lr-decay",
       [](const RunRecord& r) {
         const v1::RateDecay decay = r.job.training().learning_rate().decay();
         return static_cast<double>(decay == v1::RATE_DECAY_UNSPECIFIED ? v1::RATE_DECAY_COSINE : decay);
       }},
      {"beta1", [](const RunRecord& r) { return r.job.training().beta1(); }},
      {"beta2", [](const RunRecord& r) { return r.job.training().beta2(); }},
      {"epsilon", [](const RunRecord& r) { return r.job.training().epsilon(); }},
      {"weight-decay", [](const RunRecord& r) { return r.job.training().weight_decay(); }},
      {"clip-norm", [](const RunRecord& r) { return r.job.training().clip_norm(); }},
  };
  return *settings;
}

bool Allows(const std::vector<std::string>& allowed, const std::string& flag) {
  return std::find(allowed.begin(), allowed.end(), flag) != allowed.end();
}

absl::Status Refuse(const std::string& flag, absl::string_view now, absl::string_view before,
                    const std::string& run_dir) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, " ", now, ": the run in '", run_dir, "' was started with ", before,
                   "; leave the flag out to go on as before, or add --allow-change ", flag));
}

// "flan=0.7,code=0.3".
std::string MixText(const std::vector<MixRecord>& mix) {
  if (mix.empty()) return "one dataset";
  return absl::StrJoin(mix, ",", [](std::string* text, const MixRecord& task) {
    absl::StrAppend(text, task.task, "=", task.weight);
  });
}

// What is in the data, then what its tasks are called and weigh.
absl::Status CheckSameData(const DataRecord& before, const DataRecord& now,
                           const std::vector<std::string>& allowed, const std::string& run_dir) {
  const std::string flag = now.mix.empty() ? "dataset" : "mix";
  if (Allows(allowed, flag)) return absl::OkStatus();
  if (before.samples != now.samples || before.crc32 != now.crc32) {
    return Refuse(flag, absl::StrCat("of ", now.samples, " samples"),
                  absl::StrCat("another one, of ", before.samples, " samples"), run_dir);
  }
  const bool same = std::ranges::equal(before.mix, now.mix, [](const MixRecord& a, const MixRecord& b) {
    return a.task == b.task && a.weight == b.weight;
  });
  return same ? absl::OkStatus() : Refuse(flag, MixText(now.mix), MixText(before.mix), run_dir);
}

// Of a model that has learned each position; of others it only says how samples are cut.
bool HasOtherPositions(const v1::ModelSpec& before, const v1::ModelSpec& now) {
  return now.architecture() != v1::ARCHITECTURE_T5 && now.position() != v1::POSITION_ROTARY &&
         before.max_sequence_length() != now.max_sequence_length();
}

absl::Status CheckModelAndSeed(const RunRecord& before, const RunRecord& now, const std::string& run_dir) {
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  v1::ModelSpec model = now.job.model();
  if (!HasOtherPositions(before.job.model(), model))
    model.set_max_sequence_length(before.job.model().max_sequence_length());
  if (!differencer.Compare(before.job.model(), model)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume: the run in '", run_dir, "' has another model: ", difference));
  }
  if (before.job.training().seed() == now.job.training().seed()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--seed ", now.job.training().seed(), ": the run in '",
                                                 run_dir, "' was started with ",
                                                 before.job.training().seed()));
}

// Before the model, which has the longest of them: so a flag is named.
absl::Status CheckPositions(const RunRecord& before, const RunRecord& now, const std::string& run_dir) {
  if (!HasOtherPositions(before.job.model(), now.job.model())) return absl::OkStatus();
  if (before.data.max_length == now.data.max_length) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--max-length ", now.data.max_length, ": the run in '",
                                                 run_dir, "' was started with ", before.data.max_length,
                                                 ", and its model has as many positions"));
}

}  // namespace

absl::StatusOr<RunRecord> ReadRunRecord(const std::string& run_dir) {
  const std::string file = RunRecordFile(run_dir);
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  uint64_t format = 0;
  if (!object.is_object() || !ReadNumber(object, "format", format) || format != kFormat)
    return Wrong(file, absl::StrCat("expected \"format\" ", kFormat));
  RunRecord record;
  std::optional<FlagValues> flags = ParseFlags(object.value("flags", json()));
  if (!flags) return Wrong(file, "expected \"flags\", each a list of texts");
  record.flags = *std::move(flags);
  const std::optional<DataRecord> data = ParseData(object.value("data", json()));
  if (!data) return Wrong(file, "expected \"data\" with its numbers");
  record.data = *data;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(object.value("job", json()).dump(), &record.job);
  if (!parsed.ok()) return Wrong(file, absl::StrCat("\"job\": ", parsed.ToString()));
  if (object.contains(kAutoTune)) record.auto_tune = object[kAutoTune].dump();
  return record;
}

absl::Status WriteRunRecord(const std::string& run_dir, const RunRecord& record) {
  std::string job;
  const auto printed = google::protobuf::util::MessageToJsonString(record.job, &job);
  if (!printed.ok()) return absl::InternalError(printed.ToString());
  ordered_json object = {{"format", kFormat},
                         {"flags", record.flags},
                         {"data", PrintData(record.data)},
                         {"job", ordered_json::parse(job, nullptr, /*allow_exceptions=*/false)}};
  if (!record.auto_tune.empty())
    object[kAutoTune] = ordered_json::parse(record.auto_tune, nullptr, /*allow_exceptions=*/false);
  return WriteFileAtomically(RunRecordFile(run_dir), object.dump(1) + "\n");
}

absl::Status RecordOutlook(const std::string& run_dir, const ordered_json& outlook) {
  return AddToRecord(run_dir, "outlook", outlook);
}

absl::Status RecordAutoTune(const std::string& run_dir, const ordered_json& tried) {
  return AddToRecord(run_dir, kAutoTune, tried);
}

absl::Status RecordStrategies(const std::string& run_dir, const std::string& strategies) {
  PENSTOCK_ASSIGN_OR_RETURN(RunRecord record, ReadRunRecord(run_dir));
  record.flags["--strategies"] = {strategies};
  return AddToRecord(run_dir, "flags", record.flags);
}

absl::StatusOr<std::string> NewestRunFolder(const std::string& runs) {
  std::string newest;
  fs::file_time_type newest_time = fs::file_time_type::min();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(runs, error)) {
    const fs::file_time_type time = fs::last_write_time(RunRecordFile(entry.path().string()), error);
    if (error || time <= newest_time) continue;
    newest = entry.path().string();
    newest_time = time;
  }
  if (!newest.empty()) return newest;
  return absl::NotFoundError(
      absl::StrCat("--resume: there is no run in '", runs, "': name its folder with --run-dir"));
}

absl::Status CheckSameRun(const RunRecord& before, const RunRecord& now,
                          const std::vector<std::string>& allowed, const std::string& run_dir) {
  // The model last: another dataset has another vocabulary, too.
  PENSTOCK_RETURN_IF_ERROR(CheckSameData(before.data, now.data, allowed, run_dir));
  PENSTOCK_RETURN_IF_ERROR(CheckPositions(before, now, run_dir));
  for (const Setting& setting : Settings()) {
    if (setting.of(before) == setting.of(now) || Allows(allowed, setting.flag)) continue;
    return Refuse(setting.flag, absl::StrCat(setting.of(now)), absl::StrCat(setting.of(before)), run_dir);
  }
  if (before.data.cut != now.data.cut && !Allows(allowed, "cut")) {
    return Refuse("cut", now.data.cut, before.data.cut, run_dir);
  }
  return CheckModelAndSeed(before, now, run_dir);
}

std::vector<std::string> ChangeableFlags() {
  std::vector<std::string> flags = {"dataset", "mix"};
  for (const Setting& setting : Settings()) flags.emplace_back(setting.flag);
  flags.emplace_back("cut");
  return flags;
}

}  // namespace penstock::cli
