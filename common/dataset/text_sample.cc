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
using SampleTexts = std::vector<SampleText>;
using Tokens = std::vector<int32_t>;

void Append(const Tokens& more, Tokens& tokens) { tokens.insert(tokens.end(), more.begin(), more.end()); }

absl::StatusOr<std::string> StringOf(const Json& line, const char* field) {
  const auto found = line.find(field);
  if (found == line.end())
    return absl::InvalidArgumentError(absl::StrCat("field \"", field, "\" is missing"));
  if (!found->is_string())
    return absl::InvalidArgumentError(absl::StrCat("field \"", field, "\" is no string"));
  return found->get<std::string>();
}

SampleText Whole(std::string text) {
  return {.target = {{.text = std::move(text)}}, .begins_target = true, .ends_target = true};
}

// Finds the texts of a line.
class Reader {
 public:
  Reader(TextTokenizer& tokenizer, Conversations conversations)
      : tokenizer_(tokenizer), conversations_(conversations) {}

  absl::StatusOr<SampleTexts> Of(const Json& line) {
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
    PENSTOCK_ASSIGN_OR_RETURN(SampleTexts samples, UnweightedOf(line));
    if (!line.contains("weight")) return samples;
    PENSTOCK_ASSIGN_OR_RETURN(const float weight, WeightOf("weight", line["weight"]));
    if (weight == 0)
      return absl::InvalidArgumentError("\"weight\" is 0: nothing is learnt; leave the line out");
    for (SampleText& sample : samples) sample.weight = weight;
    return samples;
  }

 private:
  absl::StatusOr<SampleTexts> UnweightedOf(const Json& line) {
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

  absl::StatusOr<SampleTexts> Text(const Json& line) {
    PENSTOCK_ASSIGN_OR_RETURN(std::string text, StringOf(line, "text"));
    return SampleTexts{Whole(std::move(text))};
  }

  absl::StatusOr<SampleTexts> Completion(const Json& line) {
    if (line.value("prompt", Json()).is_array() && line.value("completion", Json()).is_array()) {
      Json messages = line["prompt"];
      const size_t given = messages.size();
      for (const Json& message : line["completion"]) messages.push_back(message);
      return Conversation(messages, given);
    }
    PENSTOCK_ASSIGN_OR_RETURN(std::string prompt, StringOf(line, "prompt"));
    PENSTOCK_ASSIGN_OR_RETURN(std::string completion, StringOf(line, "completion"));
    // Apart, as the prompt is when a text is generated.
    return SampleTexts{{.input = std::move(prompt),
                        .target = {{.text = std::move(completion)}},
                        .begins_input = true,
                        .ends_target = true}};
  }

  absl::StatusOr<SampleTexts> InputAndTarget(const Json& line) {
    PENSTOCK_ASSIGN_OR_RETURN(std::string input, StringOf(line, "input"));
    PENSTOCK_ASSIGN_OR_RETURN(std::string target, StringOf(line, "target"));
    return SampleTexts{{.input = std::move(input),
                        .target = {{.text = std::move(target)}},
                        .begins_input = true,
                        .ends_input = true,
                        .ends_target = true}};
  }

  absl::StatusOr<SampleTexts> Instruction(const Json& line) {
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

  absl::StatusOr<SampleTexts> ShareGpt(const Json& turns) {
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

  // Message `index`, which is learnt and weighs so much.
  struct LearntAnswer {
    size_t index = 0;
    float weight = 1;
    // The text before it, and with it.
    std::string asked;
    std::string whole;
  };

  // Learns the answers from message `first` on.
  absl::StatusOr<SampleTexts> Conversation(const Json& messages, size_t first) {
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
  static SampleText::Piece PieceOf(const LearntAnswer& answer) {
    return {
        .text = answer.whole.substr(answer.asked.size()), .weight = answer.weight, .message = answer.index};
  }

  static SampleTexts EachApart(const std::vector<LearntAnswer>& answers) {
    SampleTexts samples;
    for (const LearntAnswer& answer : answers)
      samples.push_back({.input = answer.asked, .target = {PieceOf(answer)}});
    return samples;
  }

  // One sample: what is before the first answer is its input, what is between answers weighs nothing.
  static SampleTexts Together(const std::vector<LearntAnswer>& answers) {
    SampleText sample = {.input = answers.front().asked};
    size_t written = answers.front().asked.size();
    for (const LearntAnswer& answer : answers) {
      if (answer.asked.size() > written)
        sample.target.push_back({.text = answer.asked.substr(written), .weight = 0});
      sample.target.push_back(PieceOf(answer));
      written = answer.whole.size();
    }
    return {std::move(sample)};
  }

  TextTokenizer& tokenizer_;
  const Conversations conversations_;
};

// A list in one of the fields that hold text or tokens.
bool HasTokens(const Json& line) {
  return line.contains("tokens") || line.contains("input_ids") ||
         (line.contains("target") && line["target"].is_array());
}

// Takes what the texts of samples have become, one after the other.
class Assembler {
 public:
  Assembler(const TokenizerInfo& info, std::vector<absl::StatusOr<Tokens>> encoded)
      : info_(info), encoded_(std::move(encoded)) {}

  absl::StatusOr<TokenSamples> Next(const SampleLine& line) {
    TokenSamples samples = line.tokens;
    absl::Status first = absl::OkStatus();
    for (const SampleText& text : line.texts) {
      absl::StatusOr<TokenSample> sample = NextSample(text);
      if (sample.ok()) {
        samples.push_back(*std::move(sample));
      } else if (first.ok()) {
        first = sample.status();
      }
    }
    if (!first.ok()) return first;
    return samples;
  }

 private:
  // Takes all texts of the sample, also behind an error.
  absl::StatusOr<TokenSample> NextSample(const SampleText& text) {
    absl::Status first = absl::OkStatus();
    const auto next = [&] {
      absl::StatusOr<Tokens> tokens = std::move(encoded_[next_++]);
      if (!tokens.ok() && first.ok()) first = tokens.status();
      return tokens.ok() ? *std::move(tokens) : Tokens();
    };
    TokenSample sample;
    if (text.begins_input) sample.input = info_.prefix;
    if (text.input.has_value()) Append(next(), sample.input);
    if (text.ends_input) Append(info_.suffix, sample.input);
    if (text.begins_target) sample.target = info_.prefix;
    for (const SampleText::Piece& piece : text.target) {
      const Tokens tokens = next();
      if (tokens.empty() && piece.message.has_value() && first.ok()) {
        first = absl::InvalidArgumentError(
            absl::StrCat("messages[", *piece.message, "]: the chat template writes nothing of the answer"));
      }
      Append(tokens, sample.target);
      sample.weights.insert(sample.weights.end(), tokens.size(), piece.weight);
    }
    if (text.ends_target) End(sample.target);
    if (!first.ok()) return first;
    if (std::ranges::all_of(sample.weights, [](float weight) { return weight == 1; })) sample.weights.clear();
    MultiplyWeights(text.weight, sample);
    return sample;
  }

  // With what ends a text, once.
  void End(Tokens& tokens) const {
    Append(info_.suffix, tokens);
    if (info_.end >= 0 && (tokens.empty() || tokens.back() != info_.end)) tokens.push_back(info_.end);
  }

  const TokenizerInfo& info_;
  std::vector<absl::StatusOr<Tokens>> encoded_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<SampleLine> ReadJsonSample(std::string_view line, TextTokenizer& tokenizer,
                                          Conversations conversations) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  SampleLine read;
  // The one that names the column.
  if (!json.is_object() || HasTokens(json)) {
    PENSTOCK_ASSIGN_OR_RETURN(read.tokens.emplace_back(), ParseJsonSample(line));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(read.texts, Reader(tokenizer, conversations).Of(json));
  }
  return read;
}

SampleLine WholeText(std::string text) { return {.texts = {Whole(std::move(text))}}; }

std::vector<absl::StatusOr<TokenSamples>> TokenizeAll(const std::vector<absl::StatusOr<SampleLine>>& lines,
                                                      TextTokenizer& tokenizer) {
  std::vector<std::string> texts;
  for (const absl::StatusOr<SampleLine>& line : lines) {
    if (!line.ok()) continue;
    for (const SampleText& sample : line->texts) {
      if (sample.input.has_value()) texts.push_back(*sample.input);
      for (const SampleText::Piece& piece : sample.target) texts.push_back(piece.text);
    }
  }
  Assembler assembler(tokenizer.info(), tokenizer.EncodeAll(texts));
  std::vector<absl::StatusOr<TokenSamples>> samples;
  for (const absl::StatusOr<SampleLine>& line : lines)
    samples.push_back(line.ok() ? assembler.Next(*line) : line.status());
  return samples;
}

absl::StatusOr<TokenSamples> TokenizeJsonSample(std::string_view line, TextTokenizer& tokenizer,
                                                Conversations conversations) {
  return std::move(TokenizeAll({ReadJsonSample(line, tokenizer, conversations)}, tokenizer).front());
}

}  // namespace penstock
