#include "planner/cli/html_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/verify/plan_fixture.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kHostile = "</script><script>alert(1)</script><!-- \"'&\\ \xff\u2028";

v1::PlannedBatch MakePlan(const core::FixtureOptions& options = {.pipeline = 2, .replicas = 2}) {
  v1::PlannedBatch planned = core::MakeValidPlan(options);
  for (v1::Program& program : *planned.mutable_plan()->mutable_programs())
    for (v1::Instruction& instruction : *program.mutable_instructions()) {
      instruction.set_expected_start_ns(1000 * instruction.id());
      instruction.set_expected_duration_ns(500 + program.rank());
    }
  return planned;
}

// What the page's script reads.
Json DataOf(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"plan\">";
  const size_t begin = page.find(open) + open.size();
  const Json data = Json::parse(page.substr(begin, page.find("</script>", begin) - begin), nullptr, false);
  EXPECT_FALSE(data.is_discarded());
  return data;
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Names of the elements that are open at the end, or whose end tag does not match.
std::vector<std::string> UnbalancedTags(const std::string& page) {
  static const auto& empty = *new std::set<std::string>{"meta", "input", "!doctype"};
  std::vector<std::string> open;
  for (size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const bool ends = page[at + 1] == '/';
    const size_t name = at + (ends ? 2 : 1);
    std::string tag = page.substr(name, page.find_first_of(" >\n", name) - name);
    for (char& letter : tag) letter = static_cast<char>(std::tolower(letter));
    if (empty.count(tag) > 0) continue;
    if (!ends) {
      open.push_back(tag);
      // What is inside is no markup.
      if (tag == "script" || tag == "style") at = page.find("</" + tag + ">", at) - 1;
    } else if (!open.empty() && open.back() == tag) {
      open.pop_back();
    } else {
      open.push_back("/" + tag);
      break;
    }
  }
  return open;
}

TEST(HtmlTimeline, IsOnePageWithBalancedTagsThatNeedsNoNetwork) {
  const std::string page = HtmlTimeline(MakePlan());
  EXPECT_EQ(page.rfind("<!DOCTYPE html>", 0), 0u);
  EXPECT_THAT(UnbalancedTags(page), testing::IsEmpty());
  EXPECT_EQ(Count(page, "<style>"), 1);
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy\" content=\"default-src 'none';"));
  for (const char* reference : {"http:", "https:", "src=", "href=", "@import", "url("})
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  // Every mark of the template has been replaced.
  for (const char* mark : {"@PLAN_DATA@", "@TIMELINE_STYLE@", "@TIMELINE_SCRIPT@"})
    EXPECT_THAT(page, Not(HasSubstr(mark)));
}

TEST(HtmlTimeline, HasEveryInstructionOfEveryRankOnceInOrder) {
  const v1::PlannedBatch planned = MakePlan();
  const Json ranks = DataOf(HtmlTimeline(planned))["ranks"];
  ASSERT_EQ(static_cast<int>(ranks.size()), planned.plan().programs_size());
  for (const v1::Program& program : planned.plan().programs()) {
    const Json& rank = ranks[program.rank()];
    EXPECT_EQ(rank["replica"], program.replica());
    ASSERT_EQ(static_cast<int>(rank["instructions"].size()), program.instructions_size());
    for (const v1::Instruction& instruction : program.instructions()) {
      const Json& row = rank["instructions"][instruction.id()];
      EXPECT_EQ(row[0], static_cast<int>(instruction.op()));
      EXPECT_EQ(row[1], static_cast<int>(instruction.stream()));
      EXPECT_EQ(row[2], instruction.micro_batch());
      EXPECT_EQ(row[4], instruction.expected_start_ns());
      EXPECT_EQ(row[5], instruction.expected_duration_ns());
      EXPECT_EQ(row[6], instruction.memory_acquired_bytes());
      EXPECT_EQ(row[7], instruction.memory_released_bytes());
      EXPECT_EQ(row.size(), instruction.has_transfer() ? 11u : instruction.has_collective() ? 9u : 8u);
      if (!instruction.has_transfer()) continue;
      EXPECT_EQ(row[8], instruction.transfer().bytes());
      EXPECT_EQ(row[9], instruction.transfer().peer());
    }
  }
}

TEST(HtmlTimeline, NamesOpsOfASplitBackwardAndAllStagesOfARank) {
  const Json data = DataOf(
      HtmlTimeline(MakePlan({.pipeline = 2, .replicas = 1, .stages_per_rank = 2, .split_backward = true})));
  EXPECT_EQ(data["ranks"][0]["stages"], Json::array({0, 2}));
  std::set<std::string> names;
  for (const Json& instruction : data["ranks"][0]["instructions"])
    names.insert(data["ops"][std::to_string(instruction[0].get<int>())]);
  EXPECT_THAT(names, testing::IsSupersetOf({"FORWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT", "SEND"}));
}

TEST(HtmlTimeline, CarriesSamplesAndWhatTheRanksWaitFor) {
  v1::PlannedBatch planned = MakePlan();
  planned.mutable_batch()->mutable_samples(1)->set_sample_id(UINT64_MAX);
  v1::RankPrediction& predicted = *planned.mutable_plan()->mutable_predicted()->mutable_ranks(0);
  predicted.clear_bubble();
  predicted.mutable_bubble()->set_fill_ns(1);
  predicted.mutable_bubble()->set_memory_ns(6);
  const Json data = DataOf(HtmlTimeline(planned));
  EXPECT_EQ(data["samples"][0], Json::array({1000, 0, 4}));
  // As text, because a number of the page's script would be rounded.
  EXPECT_EQ(data["samples"][1][0], "18446744073709551615");
  EXPECT_EQ(data["ranks"][0]["bubble"], Json::array({1, 0, 0, 0, 0, 6, 0}));
  const v1::MicroBatch& micro_batch = planned.plan().replicas(1).micro_batches(2);
  const Json& shown = data["replicas"][1]["microBatches"][2];
  EXPECT_EQ(shown["samples"].size(), static_cast<size_t>(micro_batch.samples_size()));
  EXPECT_EQ(shown["computedTokens"], micro_batch.computed_tokens());
  EXPECT_EQ(shown["layout"], "padded");
}

TEST(HtmlTimeline, CarriesPlacesSpansAndExchangeOfStageGroups) {
  v1::PlannedBatch planned =
      MakePlan({.pipeline = 2, .replicas = 1, .layout = v1::LAYOUT_PACKED, .context = 2, .tensor = 2});
  int pass = 0;
  v1::Program& program = *planned.mutable_plan()->mutable_programs(7);
  while (program.instructions(pass).op() != v1::OP_FORWARD) ++pass;
  v1::Instruction& forward = *program.mutable_instructions(pass);
  forward.set_own_duration_ns(400);
  forward.clear_exchange();
  forward.mutable_exchange()->set_tensor_bytes(1);
  forward.mutable_exchange()->set_tensor_ns(2);
  forward.mutable_exchange()->set_context_sent_bytes(3);
  forward.mutable_exchange()->set_context_received_bytes(4);
  forward.mutable_exchange()->set_context_ns(5);
  forward.mutable_exchange()->set_context_exposed_ns(6);
  forward.mutable_exchange()->set_expert_bytes(7);
  forward.mutable_exchange()->set_expert_ns(8);
  forward.mutable_exchange()->set_expert_exposed_ns(9);
  planned.mutable_plan()->mutable_predicted()->mutable_ranks(7)->mutable_bubble()->set_group_ns(9);
  const Json data = DataOf(HtmlTimeline(planned));
  EXPECT_EQ(data["mesh"], Json::array({2, 1, 2, 2}));
  EXPECT_EQ(data["ranks"][6]["context"], 1);
  EXPECT_EQ(data["ranks"][6]["tensor"], 0);
  EXPECT_EQ(data["ranks"][7]["bubble"][6], 9);
  EXPECT_EQ(data["ranks"][7]["instructions"][pass][8], Json::array({400, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const v1::MicroBatch& micro_batch = planned.plan().replicas(0).micro_batches(0);
  const Json& spans = data["replicas"][0]["microBatches"][0]["spans"];
  ASSERT_EQ(static_cast<int>(spans.size()), micro_batch.span_ranks_size());
  for (size_t row = 0; row < spans.size(); ++row)
    EXPECT_EQ(spans[row], Json::array({micro_batch.span_first(static_cast<int>(row)),
                                       micro_batch.span_ranks(static_cast<int>(row))}));
}

TEST(HtmlTimeline, AHostileJobIdStaysText) {
  v1::PlannedBatch planned = MakePlan();
  const std::string harmless = HtmlTimeline(planned);
  planned.mutable_plan()->set_job_id(kHostile);
  const std::string page = HtmlTimeline(planned);
  for (const char* markup : {"<script", "</script", "<!--"})
    EXPECT_EQ(Count(page, markup), Count(harmless, markup)) << markup;
  EXPECT_THAT(UnbalancedTags(page), testing::IsEmpty());
  const std::string job = DataOf(page)["job"];
  EXPECT_THAT(job, testing::StartsWith("</script><script>alert(1)</script><!-- \"'&\\ "));
}

TEST(HtmlTimeline, CarriesAnExplanationWhereThereIsOne) {
  EXPECT_TRUE(DataOf(HtmlTimeline(MakePlan()))["explanation"].is_null());
  const std::string page = HtmlTimeline(MakePlan(), {{"conclusion", kHostile}});
  EXPECT_THAT(UnbalancedTags(page), testing::IsEmpty());
  EXPECT_THAT(DataOf(page)["explanation"]["conclusion"].get<std::string>(), HasSubstr("alert(1)"));
}

TEST(HtmlTimeline, ShowsAPlanWithoutRanksAndOneWithoutPredictions) {
  EXPECT_EQ(DataOf(HtmlTimeline(v1::PlannedBatch()))["ranks"].size(), 0u);
  v1::PlannedBatch planned = MakePlan();
  planned.mutable_plan()->clear_predicted();
  EXPECT_EQ(DataOf(HtmlTimeline(planned))["ranks"][0]["busy"], 0);
}

}  // namespace
}  // namespace penstock::cli
