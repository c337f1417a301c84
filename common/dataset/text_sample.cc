#include "common/dataset/text_sample.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using TokenSamples = std::vector<TokenSample>;
using Tokens = std::vector<int32_t>;

Tokens Joined(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

absl::StatusOr<std::string> StringOf(const Json& line, const char* field) {
  const auto found = line.find(field);
  if (found == line.end())
    return absl::InvalidArgumentError(absl::StrCat("field \"", field, "\" is missing"));
  if (!found->is_string())
    return absl::InvalidArgumentError(absl::StrCat("field \"", field, "\" is no string"));
  return found->get<std::string>();
}

// What a text begins with, and what it is.
class Reader {
 public:
  explicit Reader(TextTokenizer& tokenizer, Conversations conversations = Conversations::kWhole)
      : tokenizer_(tokenizer), conversations_(conversations) {}

  absl::StatusOr<TokenSample> Whole(const std::string& text) {
    PENSTOCK_ASSIGN_OR_RETURN(Tokens tokens, tokenizer_.Encode(text));
    return TokenSample{.input = {}, .target = Ended(Joined(info().prefix, tokens))};
  }

  absl::StatusOr<TokenSamples> Of(const Json& line) {
    for (const auto& [field, value] : line.items()) {
      PENSTOCK_RETURN_IF_ERROR(CheckMeansNothing(field));
      for (const char* of_tokens : {"weights", "labels", "loss_mask", "assistant_masks", "completion_mask"}) {
        if (field == of_tokens) {
          return absl::InvalidArgumentError(
              absl::StrCat("field \"", field,
                           "\" is of tokens, and the line has text: give \"input_ids\", or \"weight\""));
        }
      }
    }
    PENSTOCK_ASSIGN_OR_RETURN(TokenSamples samples, UnweightedOf(line));
    if (!line.contains("weight")) return samples;
    PENSTOCK_ASSIGN_OR_RETURN(const float weight, WeightOf("weight", line["weight"]));
    if (weight == 0)
      return absl::InvalidArgumentError("\"weight\" is 0: nothing is learnt; leave the line out");
    for (TokenSample& sample : samples) MultiplyWeights(weight, sample);
    return samples;
  }

 private:
  absl::StatusOr<TokenSamples> UnweightedOf(const Json& line) {
    if (line.contains("messages")) return Conversation(line["messages"], 0);
    if (line.contains("conversations")) return ShareGpt(line["conversations"]);
    if (line.contains("prompt") || line.contains("completion")) return Completion(line);
    if (line.contains("instruction")) return Instruction(line);
    if (line.contains("text")) return Text(line);
    if (line.contains("input") && line.contains("target")) return InputAndTarget(line);
    return absl::InvalidArgumentError(
        "expected \"text\", \"messages\", \"conversations\", \"prompt\" and \"completion\", \"instruction\" "
        "and "
        "\"output\", \"input\" and \"target\", or \"tokens\"");
  }

  const TokenizerInfo& info() const { return tokenizer_.info(); }

  // With what ends a text, once.
  Tokens Ended(Tokens tokens) const {
    tokens = Joined(std::move(tokens), info().suffix);
    if (info().end >= 0 && (tokens.empty() || tokens.back() != info().end)) tokens.push_back(info().end);
    return tokens;
  }

  absl::StatusOr<TokenSamples> Text(const Json& line) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, StringOf(line, "text"));
    PENSTOCK_ASSIGN_OR_RETURN(TokenSample sample, Whole(text));
    return TokenSamples{std::move(sample)};
  }

  absl::StatusOr<TokenSamples> Completion(const Json& line) {
    if (line.value("prompt", Json()).is_array() && line.value("completion", Json()).is_array()) {
      Json messages = line["prompt"];
      const size_t given = messages.size();
      for (const Json& message : line["completion"]) messages.push_back(message);
      return Conversation(messages, given);
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::string prompt, StringOf(line, "prompt"));
    PENSTOCK_ASSIGN_OR_RETURN(const std::string completion, StringOf(line, "completion"));
    // Apart, as the prompt is when a text is generated.
    PENSTOCK_ASSIGN_OR_RETURN(const Tokens input, tokenizer_.Encode(prompt));
    PENSTOCK_ASSIGN_OR_RETURN(const Tokens target, tokenizer_.Encode(completion));
    return TokenSamples{{.input = Joined(info().prefix, input), .target = Ended(target)}};
  }

  absl::StatusOr<TokenSamples> InputAndTarget(const Json& line) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::string input, StringOf(line, "input"));
    PENSTOCK_ASSIGN_OR_RETURN(const std::string target, StringOf(line, "target"));
    PENSTOCK_ASSIGN_OR_RETURN(const Tokens inputs, tokenizer_.Encode(input));
    PENSTOCK_ASSIGN_OR_RETURN(const Tokens targets, tokenizer_.Encode(target));
    return TokenSamples{
        {.input = Joined(Joined(info().prefix, inputs), info().suffix), .target = Ended(targets)}};
  }

  absl::StatusOr<TokenSamples> Instruction(const Json& line) {
    if (!info().has_chat_template) {
      return absl::InvalidArgumentError(
          "field \"instruction\" needs a tokenizer with a chat template: give \"prompt\" and \"completion\"");
    }
    PENSTOCK_ASSIGN_OR_RETURN(std::string asked, StringOf(line, "instruction"));
    PENSTOCK_ASSIGN_OR_RETURN(const std::string output, StringOf(line, "output"));
    if (line.contains("input") && line["input"] != "") {
      PENSTOCK_ASSIGN_OR_RETURN(const std::string input, StringOf(line, "input"));
      absl::StrAppend(&asked, "\n\n", input);
    }
    const Json messages = {{{"role", "user"}, {"content", asked}},
                           {{"role", "assistant"}, {"content", output}}};
    return Conversation(messages, 0);
  }

  absl::StatusOr<TokenSamples> ShareGpt(const Json& turns) {
    static const auto& roles = *new std::map<std::string, std::string>{{"human", "user"},
                                                                       {"user", "user"},
                                                                       {"gpt", "assistant"},
                                                                       {"assistant", "assistant"},
                                                                       {"system", "system"}};
    Json messages = Json::array();
    for (const Json& turn : turns) {
      const auto role = roles.find(turn.is_object() ? turn.value("from", "") : "");
      if (role == roles.end() || !turn.value("value", Json()).is_string()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "conversations[", messages.size(), "]: expected \"from\" (human, gpt or system) and \"value\""));
      }
      messages.push_back({{"role", role->second}, {"content", turn["value"]}});
    }
    return Conversation(messages, 0);
  }

  static absl::Status CheckMessage(const Json& message, size_t index) {
    if (message.is_object() && message.value("role", Json()).is_string() &&
        (message.value("content", Json()).is_string() || message.contains("tool_calls")))
      return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("messages[", index, "]: expected \"role\" and \"content\", both strings"));
  }

  static absl::StatusOr<float> WeightOf(const std::string& field, const Json& weight) {
    if (weight.is_number()) return CheckedWeight(field, weight.get<double>());
    return absl::InvalidArgumentError(absl::StrCat(field, " is ", weight.dump(), ", expected a number"));
  }

  // OpenAI's "weight" of an answer; of other messages 0.
  static absl::StatusOr<float> WeightOfMessage(const Json& message, size_t index) {
    if (message["role"] != "assistant") return 0.0F;
    return WeightOf(absl::StrCat("messages[", index, "].weight"), message.value("weight", Json(1)));
  }

  // A sample that is learnt from message `index` on, which weighs so much.
  struct LearntAnswer {
    size_t index = 0;
    float weight = 1;
    TokenSample sample;
    // The text before it, and with it.
    std::string asked;
    std::string whole;
  };

  // Learns the answers from message `first` on.
  absl::StatusOr<TokenSamples> Conversation(const Json& messages, size_t first) {
    if (!messages.is_array()) return absl::InvalidArgumentError("\"messages\" is no list");
    if (!info().has_chat_template) {
      return absl::InvalidArgumentError(
          "the tokenizer has no chat template, which says how messages are written: give \"prompt\" and "
          "\"completion\"");
    }
    std::vector<LearntAnswer> answers;
    Json before = Json::array();
    for (size_t i = 0; i < messages.size(); ++i) {
      PENSTOCK_RETURN_IF_ERROR(CheckMessage(messages[i], i));
      PENSTOCK_ASSIGN_OR_RETURN(const float weight, WeightOfMessage(messages[i], i));
      if (weight > 0 && i >= first) {
        absl::StatusOr<LearntAnswer> answer = RenderAnswer(before, messages[i]);
        if (!answer.ok()) return AnnotateError(answer.status(), absl::StrCat("messages[", i, "]"));
        answer->index = i;
        answer->weight = weight;
        answers.push_back(*std::move(answer));
      }
      before.push_back(messages[i]);
    }
    if (answers.empty())
      return absl::InvalidArgumentError(
          "no message with \"role\": \"assistant\", of which something is learnt");
    if (conversations_ == Conversations::kWhole && FollowEachOther(answers)) return Together(answers);
    return EachApart(answers);
  }

  // Whether the text before each answer begins with all that comes up to the end of the answer before it.
  static bool FollowEachOther(const std::vector<LearntAnswer>& answers) {
    for (size_t i = 1; i < answers.size(); ++i)
      if (!absl::StartsWith(answers[i].asked, answers[i - 1].whole)) return false;
    return true;
  }

  absl::StatusOr<LearntAnswer> RenderAnswer(const Json& before, const Json& message) {
    Json with_answer = before;
    with_answer.push_back(message);
    LearntAnswer answer;
    PENSTOCK_ASSIGN_OR_RETURN(answer.asked, tokenizer_.Render(before.dump(), /*add_generation_prompt=*/true));
    PENSTOCK_ASSIGN_OR_RETURN(answer.whole,
                              tokenizer_.Render(with_answer.dump(), /*add_generation_prompt=*/false));
    if (absl::StartsWith(answer.whole, answer.asked)) return answer;
    return absl::InvalidArgumentError(
        "the chat template writes what comes before the answer otherwise where the answer follows: give "
        "\"prompt\" and \"completion\"");
  }

  // The template has what begins and ends a text.
  absl::StatusOr<Tokens> EncodeAnswer(const LearntAnswer& answer) {
    PENSTOCK_ASSIGN_OR_RETURN(Tokens target, tokenizer_.Encode(answer.whole.substr(answer.asked.size())));
    if (!target.empty()) return target;
    return absl::InvalidArgumentError(
        absl::StrCat("messages[", answer.index, "]: the chat template writes nothing of the answer"));
  }

  absl::StatusOr<TokenSamples> EachApart(const std::vector<LearntAnswer>& answers) {
    TokenSamples samples;
    for (const LearntAnswer& answer : answers) {
      TokenSample& sample = samples.emplace_back();
      PENSTOCK_ASSIGN_OR_RETURN(sample.input, tokenizer_.Encode(answer.asked));
      PENSTOCK_ASSIGN_OR_RETURN(sample.target, EncodeAnswer(answer));
      MultiplyWeights(answer.weight, sample);
    }
    return samples;
  }

  // One sample: what is before the first answer is its input, what is between answers weighs nothing.
  absl::StatusOr<TokenSamples> Together(const std::vector<LearntAnswer>& answers) {
    TokenSample sample;
    PENSTOCK_ASSIGN_OR_RETURN(sample.input, tokenizer_.Encode(answers.front().asked));
    size_t written = answers.front().asked.size();
    for (const LearntAnswer& answer : answers) {
      Tokens between;
      if (answer.asked.size() > written) {
        PENSTOCK_ASSIGN_OR_RETURN(between, tokenizer_.Encode(answer.asked.substr(written)));
      }
      PENSTOCK_ASSIGN_OR_RETURN(const Tokens tokens, EncodeAnswer(answer));
      sample.target = Joined(Joined(std::move(sample.target), between), tokens);
      sample.weights.insert(sample.weights.end(), between.size(), 0);
      sample.weights.insert(sample.weights.end(), tokens.size(), answer.weight);
      written = answer.whole.size();
    }
    if (std::ranges::all_of(sample.weights, [](float weight) { return weight == 1; })) sample.weights.clear();
    return TokenSamples{std::move(sample)};
  }

  TextTokenizer& tokenizer_;
  const Conversations conversations_;
};

// A list in one of the fields that hold text or tokens.
bool HasTokens(const Json& line) {
  return line.contains("tokens") || line.contains("input_ids") ||
         (line.contains("target") && line["target"].is_array());
}

}  // namespace

absl::StatusOr<TokenSamples> TokenizeJsonSample(std::string_view line, TextTokenizer& tokenizer,
                                                Conversations conversations) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  // The one that names the column.
  if (!json.is_object() || HasTokens(json)) {
    PENSTOCK_ASSIGN_OR_RETURN(TokenSample sample, ParseJsonSample(line));
    return TokenSamples{std::move(sample)};
  }
  return Reader(tokenizer, conversations).Of(json);
}

absl::StatusOr<TokenSample> TokenizeText(const std::string& text, TextTokenizer& tokenizer) {
  return Reader(tokenizer).Whole(text);
}

}  // namespace penstock
