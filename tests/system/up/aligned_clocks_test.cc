// `penstock up --trace` of ranks whose clocks are wrong on purpose: the trace has them right, to within what
// it says.
#include <cmath>
#include <utility>

#include "tests/system/up/up_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

// When the first instruction of an iteration began and the last one ended, nanoseconds.
struct Span {
  double began_ns = 0;
  double ended_ns = 0;
};

// By rank and iteration.
using Spans = std::map<std::pair<uint32_t, uint64_t>, Span>;

// What workers log of their true times.
Spans TrueSpans(const std::string& run_dir, uint32_t ranks) {
  Spans spans;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const std::string log = ReadFile(absl::StrCat(run_dir, "/logs/worker-", rank, ".log")).value_or("");
    for (const absl::string_view line : absl::StrSplit(log, '\n')) {
      if (!absl::StrContains(line, " true times ")) continue;
      std::map<std::string, int64_t> fields;
      for (const absl::string_view word : absl::StrSplit(line, ' ')) {
        const std::pair<std::string, std::string> field = absl::StrSplit(word, absl::MaxSplits('=', 1));
        if (!absl::SimpleAtoi(field.second, &fields[field.first])) fields.erase(field.first);
      }
      spans[{rank, static_cast<uint64_t>(fields["iteration"])}] = {
          static_cast<double>(fields["began_unix_ns"]), static_cast<double>(fields["ended_unix_ns"])};
    }
  }
  return spans;
}

Spans SpansOfTrace(const std::string& path) {
  Spans spans;
  const auto trace = nlohmann::json::parse(ReadFile(path).value_or(""), nullptr, /*allow_exceptions=*/false);
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || !event.contains("args") || event["args"]["optype"] == "batch-wait") continue;
    const double began_ns = 1e3 * event["ts"].get<double>();
    const double ended_ns = began_ns + 1e3 * event["dur"].get<double>();
    const auto [span, added] =
        spans.try_emplace({event["pid"], event["args"]["iteration"]}, Span{began_ns, ended_ns});
    span->second.began_ns = std::min(span->second.began_ns, began_ns);
    span->second.ended_ns = std::max(span->second.ended_ns, ended_ns);
  }
  return spans;
}

// Since rank 0 began its first iteration; its clock is the one that all others are put right by.
void CountFromRank0(Spans& spans) {
  const double zero_ns = spans[{0, 0}].began_ns;
  for (auto& [place, span] : spans) {
    span.began_ns -= zero_ns;
    span.ended_ns -= zero_ns;
  }
}

// "clocks of ranks are up to 1000.003 ms from rank 0's: put right by ..., to within 0.043 ms".
double UncertaintyNs(const std::string& said) {
  const std::string before = "what ranks sent each other, to within ";
  double milliseconds = -1;
  const size_t at = said.find(before);
  if (at == std::string::npos) return -1;
  const std::string text = said.substr(at + before.size());
  EXPECT_TRUE(absl::SimpleAtod(text.substr(0, text.find(' ')), &milliseconds)) << text;
  return 1e6 * milliseconds;
}

void ExpectAligned(Spans truth, Spans aligned, double uncertainty_ns, size_t count) {
  // The trace is written in microseconds with three digits, times of workers are whole nanoseconds.
  constexpr double kRounding = 3;
  CountFromRank0(truth);
  CountFromRank0(aligned);
  ASSERT_EQ(truth.size(), count);
  ASSERT_EQ(aligned.size(), count);
  for (const auto& [place, span] : truth) {
    const Span& found = aligned[place];
    EXPECT_NEAR(found.began_ns, span.began_ns, uncertainty_ns + kRounding)
        << "rank " << place.first << ", iteration " << place.second;
    EXPECT_NEAR(found.ended_ns, span.ended_ns, uncertainty_ns + kRounding)
        << "rank " << place.first << ", iteration " << place.second;
  }
}

TEST(AlignedClocksTest, SimulatedRanksArePutRightToWithinWhatIsSaid) {
  constexpr uint32_t kRanks = 4;
  constexpr uint64_t kIterations = 12;
  const TemporaryFolder folder;
  const std::string examples = absl::StrCat(PENSTOCK_SOURCE_DIR, "/examples");
  std::vector<std::string> arguments = {"up",
                                        "--device",
                                        "simulated",
                                        "--profile",
                                        examples + "/gpt_7b.json",
                                        "--lengths",
                                        examples + "/lengths.csv",
                                        "--rows",
                                        "0:24",
                                        "--max-length",
                                        "4096",
                                        "--pp",
                                        "2",
                                        "--dp",
                                        "2",
                                        "--time-scale",
                                        "0",
                                        "--iterations",
                                        absl::StrCat(kIterations),
                                        "--run-dir",
                                        folder.Path("run"),
                                        "--trace",
                                        folder.Path("trace.json")};
  for (const char* error : {"1:1:100", "2:-1:-100", "3:0.001:60"}) {
    arguments.emplace_back("--clock-error");
    arguments.emplace_back(error);
  }
  PenstockRun up(folder, "up", arguments);
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  const double uncertainty_ns = UncertaintyNs(up.output() + up.errors());
  ASSERT_GT(uncertainty_ns, 0) << up.output() << up.errors();
  ExpectAligned(TrueSpans(folder.Path("run"), kRanks), SpansOfTrace(folder.Path("trace.json")),
                uncertainty_ns, kRanks * kIterations);
}

class RealClocksTest : public UpTest {};

TEST_F(RealClocksTest, RanksThatComputeArePutRightToWithinWhatIsSaid) {
  constexpr uint32_t kRanks = 4;
  constexpr uint64_t kIterations = 12;
  PenstockRun up(folder_, "up",
                 UpArguments({"--iterations", absl::StrCat(kIterations), "--trace",
                              folder_.Path("trace.json"), "--clock-error", "1:0.8:100", "--clock-error",
                              "2:-1:50", "--clock-error", "3:0.02:-100"}));
  ASSERT_EQ(up.Wait(), 0) << up.errors();
  const double uncertainty_ns = UncertaintyNs(up.output() + up.errors());
  ASSERT_GT(uncertainty_ns, 0) << up.output() << up.errors();
  ExpectAligned(TrueSpans(RunDir(), kRanks), SpansOfTrace(folder_.Path("trace.json")), uncertainty_ns,
                kRanks * kIterations);
}

}  // namespace
}  // namespace penstock
