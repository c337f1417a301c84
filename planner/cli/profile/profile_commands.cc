// `penstock profile`; `show` and `compare`: cost profiles for people.
#include "planner/cli/profile/profile_commands.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "planner/cli/plan_summary.h"
#include "planner/cli/printable_text.h"
#include "planner/cli/profile/analytic_command.h"
#include "planner/cli/profile/efficiency_lines.h"
#include "planner/cli/profile/measure_commands.h"
#include "planner/cli/profile/profile_figures.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/text_table.h"
#include "planner/cli/thousands.h"
#include "planner/cli/units.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ProfileFlags {
  std::string file;
  std::string other;
  bool json = false;
};

std::string Link(double bytes_per_second, int64_t latency_ns) {
  return absl::StrFormat("%.2f GB/s after %.1f us", bytes_per_second / 1e9,
                         static_cast<double>(latency_ns) / 1e3);
}

std::vector<std::string> Header(const std::vector<uint32_t>& lengths) {
  std::vector<std::string> header = {"one sample of so many tokens"};
  for (const uint32_t length : lengths) header.push_back(WithThousands(length));
  return header;
}

std::string Figure(const std::optional<double>& value) {
  return value.has_value() ? absl::StrFormat("%.4g", *value) : "-";
}

Json ToJson(const std::vector<EfficiencyTable>& tables) {
  Json json = Json::object();
  for (const EfficiencyTable& table : tables)
    for (const v1::EfficiencyPoint& point : table.points)
      json[table.of].push_back({{"tokens", point.tokens()}, {"factor", point.factor()}});
  return json;
}

Json ToJson(const ProfileFigures& figures) {
  Json json = {{"lengths", figures.lengths}};
  for (const ProfileFigures::Row& row : figures.rows) {
    Json values = Json::array();
    for (const std::optional<double>& value : row.values)
      values.push_back(value.has_value() ? Json(*value) : Json());
    json["figures"][row.what] = values;
  }
  return json;
}

// A line, where there are any.
std::string CollectiveSpeeds(const v1::CostProfile& profile) {
  if (profile.cluster().collective_speeds().empty()) return "";
  std::vector<std::string> speeds;
  for (const v1::CollectiveSpeed& speed : profile.cluster().collective_speeds())
    speeds.push_back(
        absl::StrCat(speed.ranks(), " ranks ", Link(speed.bytes_per_second(), speed.latency_ns())));
  return absl::StrCat("collectives   ", absl::StrJoin(speeds, ", "), "\n");
}

// Likewise.
std::string SlowRanks(const v1::CostProfile& profile) {
  if (profile.slow_ranks().empty()) return "";
  std::vector<std::string> ranks;
  for (const v1::SlowRank& slow : profile.slow_ranks())
    ranks.push_back(absl::StrFormat("%d (%.3g times as long)", slow.rank(), slow.factor()));
  return absl::StrCat("slow ranks    ", absl::StrJoin(ranks, ", "), "\n");
}

// Likewise.
std::string DescribeSlowLinks(const v1::CostProfile& profile) {
  if (profile.slow_links().empty()) return "";
  std::vector<std::string> links;
  for (const v1::SlowLink& slow : profile.slow_links())
    links.push_back(absl::StrFormat("%d to %d (%.3g times as long)", slow.from(), slow.to(), slow.factor()));
  return absl::StrCat("slow links    ", absl::StrJoin(links, ", "), "\n");
}

// Likewise.
std::string UnevenExperts(const v1::CostProfile& profile) {
  if (profile.expert_loads().empty()) return "";
  std::vector<std::string> loads;
  for (const v1::ExpertLoad& load : profile.expert_loads())
    loads.push_back(
        absl::StrFormat("of %d ranks the fullest has %.3g times its share", load.ranks(), load.fullest()));
  return absl::StrCat("experts       ", absl::StrJoin(loads, ", "), "\n");
}

// Likewise.
std::string Noise(const v1::CostProfile& profile) {
  if (profile.pass_noise() == 0) return "";
  return absl::StrFormat("noise         passes differ by %.3g %% from what is foretold\n",
                         100 * profile.pass_noise());
}

// Likewise.
std::string Training(const v1::CostProfile& profile) {
  if (profile.training_factor() == 0) return "";
  return absl::StrFormat("training      computing takes %.3g times what it takes alone\n",
                         profile.training_factor());
}

// Of profiles that say it.
std::string FixedStep(const v1::CostProfile& profile) {
  if (profile.optimizer_fixed_ns() == 0) return "";
  return absl::StrFormat(" and %.3g us", profile.optimizer_fixed_ns() / 1e3);
}

std::string Describe(const v1::CostProfile& profile) {
  const v1::Cluster& cluster = profile.cluster();
  return absl::StrCat(
      "profile       ", profile.name(), ", version ", profile.version(), "\n",
      profile.comment().empty() ? "" : absl::StrCat("              ", profile.comment(), "\n"),
      "memory        ", WithThousands(Megabytes(cluster.memory_bytes())), " MB a rank, ",
      cluster.gpus_per_node(), " ranks a node\n", "links         ",
      Link(cluster.intra_node_bytes_per_second(), cluster.intra_node_latency_ns()), " inside a node, ",
      Link(cluster.inter_node_bytes_per_second(), cluster.inter_node_latency_ns()), " between nodes\n",
      CollectiveSpeeds(profile), SlowRanks(profile), DescribeSlowLinks(profile), UnevenExperts(profile),
      Noise(profile), Training(profile), EfficiencyLines(profile),
      absl::StrFormat("state         %.3g bytes for each byte of parameters, of which %.3g are divided with "
                      "--shard-optimizer-state; a step takes %.3g ns a byte%s\n\n",
                      profile.state_bytes_per_parameter_byte(),
                      profile.sharded_state_bytes_per_parameter_byte(),
                      profile.optimizer_ns_per_parameter_byte(), FixedStep(profile)));
}

std::string Table(const ProfileFigures& figures) {
  TextTable table(Header(figures.lengths));
  for (const ProfileFigures::Row& row : figures.rows) {
    std::vector<std::string> cells = {row.what};
    for (const std::optional<double>& value : row.values) cells.push_back(Figure(value));
    table.AddRow(std::move(cells));
  }
  return table.ToString();
}

// Others may have written the file: what is printed is made printable. `efficiency`: by file.
void Print(const ProfileFlags& flags, const std::string& above, const ProfileFigures& figures,
           const Json& efficiency) {
  if (!flags.json) return PrintOut(absl::StrCat(above, Table(figures)));
  Json json = ToJson(figures);
  json["efficiency"] = efficiency;
  PrintOut(absl::StrCat(DumpJson(json), "\n"));
}

absl::Status RunShow(const ProfileFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ProfileFile file, ReadProfileFile("FILE", flags.file));
  PENSTOCK_ASSIGN_OR_RETURN(const ProfileFigures figures, FiguresOf(file));
  Print(flags, Describe(file.profile()), figures, ToJson(EfficiencyTablesOf(file.profile())));
  return absl::OkStatus();
}

// Of the other by this one, where both say something.
ProfileFigures Ratios(const ProfileFigures& figures, const ProfileFigures& others) {
  ProfileFigures ratios = {.lengths = figures.lengths};
  for (const ProfileFigures::Row& row : figures.rows) {
    for (const ProfileFigures::Row& other : others.rows) {
      if (other.what != row.what) continue;
      ProfileFigures::Row& ratio = ratios.rows.emplace_back();
      ratio.what = row.what.substr(0, row.what.rfind(','));
      for (size_t i = 0; i < row.values.size(); ++i) {
        const bool both = row.values[i].value_or(0) > 0 && other.values[i].has_value();
        ratio.values.push_back(both ? std::optional(*other.values[i] / *row.values[i]) : std::nullopt);
      }
    }
  }
  return ratios;
}

// A line, where either has noise: how far passes of each differ from what is foretold.
std::string CompareNoise(const v1::CostProfile& one, const v1::CostProfile& other) {
  if (one.pass_noise() == 0 && other.pass_noise() == 0) return "";
  return absl::StrFormat("noise         %.3g %% by %.3g %%\n\n", 100 * other.pass_noise(),
                         100 * one.pass_noise());
}

// Lines of both, where either has tables.
std::string CompareEfficiency(const ProfileFlags& flags, const v1::CostProfile& one,
                              const v1::CostProfile& other) {
  const std::string of_one = EfficiencyLines(one), of_other = EfficiencyLines(other);
  if (of_one.empty() && of_other.empty()) return "";
  const auto lines = [](const std::string& file, const std::string& of) {
    return absl::StrCat(file, of.empty() ? ": a token takes as long among many as among few\n" : ":\n", of);
  };
  return absl::StrCat(lines(flags.other, of_other), lines(flags.file, of_one), "\n");
}

absl::Status RunCompare(const ProfileFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ProfileFile file, ReadProfileFile("FILE", flags.file));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ProfileFile other, ReadProfileFile("OTHER", flags.other));
  PENSTOCK_ASSIGN_OR_RETURN(const ProfileFigures figures, FiguresOf(file));
  PENSTOCK_ASSIGN_OR_RETURN(const ProfileFigures others, FiguresOf(other, figures.lengths));
  Print(
      flags,
      absl::StrCat(flags.other, " by ", flags.file, ": above 1 is slower, or keeps more\n\n",
                   CompareNoise(file.profile(), other.profile()),
                   CompareEfficiency(flags, file.profile(), other.profile())),
      Ratios(figures, others),
      Json::array({ToJson(EfficiencyTablesOf(file.profile())), ToJson(EfficiencyTablesOf(other.profile()))}));
  return absl::OkStatus();
}

}  // namespace

void AddProfileCommands(CommandSet& commands) {
  CLI::App* profile = commands.Add(
      {.name = "profile", .purpose = "Measures, estimates, checks, shows and compares cost profiles"});
  profile->require_subcommand(1);
  const auto flags = std::make_shared<ProfileFlags>();

  CLI::App* show =
      commands.Add({.name = "show",
                    .purpose = "What passes of a layer take, and what they keep, by a cost profile",
                    .examples = "penstock profile show examples/gpt_7b.json\n"
                                "penstock profile show ~/.cache/penstock/profiles/gpt-hidden128-....json"},
                   profile);
  show->add_option("FILE", flags->file, "The cost profile")->required();
  show->add_flag("--json", flags->json, "One JSON object");
  commands.OnRun(show, [flags] { return RunShow(*flags); });

  CLI::App* compare = commands.Add({.name = "compare",
                                    .purpose = "How much slower or faster one cost profile is than another",
                                    .examples = "penstock profile compare quiet.json busy.json"},
                                   profile);
  compare->add_option("FILE", flags->file, "A cost profile")->required();
  compare->add_option("OTHER", flags->other, "Another, whose figures are divided by those of FILE")
      ->required();
  compare->add_flag("--json", flags->json, "One JSON object");
  commands.OnRun(compare, [flags] { return RunCompare(*flags); });
  AddMeasureCommands(commands, profile);
  AddAnalyticCommand(commands, profile);
}

}  // namespace penstock::cli
