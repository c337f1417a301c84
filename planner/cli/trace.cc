#include "planner/cli/trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/mesh/rank_places.h"
#include "planner/cli/units.h"
#include "planner/core/contract/passes.h"
#include "planner/core/contract/whole_iteration.h"
#include "planner/core/timeline/computed_time.h"
#include "planner/core/timeline/operation_of_instruction.h"
#include "planner/core/timeline/slow_factors.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kNanosecondsPerMicrosecond = 1e3;
// Processes of what was planned have the numbers from here on: no job has as many ranks.
constexpr int64_t kPlannedProcesses = 1 << 24;

// The format counts microseconds.
double Microseconds(int64_t ns) { return static_cast<double>(ns) / kNanosecondsPerMicrosecond; }

std::string Dump(const Json& event) { return event.dump(-1, ' ', false, Json::error_handler_t::replace); }

const char* StreamName(int stream) {
  static constexpr const char* kNames[] = {"other", "compute", "link to previous stage", "link to next stage",
                                           "collectives"};
  return kNames[stream];
}

std::string OpName(v1::Op op) {
  return v1::Op_IsValid(op) ? v1::Op_Name(op).substr(3) : absl::StrCat("op ", static_cast<int>(op));
}

// "FORWARD 3": the op and its micro-batch; "FORWARD 3, stage 2" where the rank has several stages.
std::string NameOf(const v1::Program& program, const v1::Instruction& instruction) {
  if (instruction.op() == v1::OP_RESHARD)
    return absl::StrCat("RESHARD ", instruction.part() == 0 ? "parameters" : "gradients");
  if (core::IsOfWholeIteration(instruction.op())) return OpName(instruction.op());
  std::string name = absl::StrCat(OpName(instruction.op()), " ", instruction.micro_batch());
  if (program.stages_size() > 1) absl::StrAppend(&name, ", stage ", instruction.stage());
  return name;
}

// Of a stage group of several ranks.
bool IsJointPass(const v1::Instruction& instruction) {
  return instruction.has_collective() && !core::IsOfWholeIteration(instruction.op());
}

void AddJointPass(const v1::Instruction& instruction, Json& arguments) {
  arguments["own_ms"] = Milliseconds(instruction.own_duration_ns());
  if (!instruction.has_exchange()) return;
  const v1::PassExchange& exchange = instruction.exchange();
  arguments["tensor_bytes"] = exchange.tensor_bytes();
  arguments["tensor_ms"] = Milliseconds(exchange.tensor_ns());
  arguments["context_sent_bytes"] = exchange.context_sent_bytes();
  arguments["context_received_bytes"] = exchange.context_received_bytes();
  arguments["context_ms"] = Milliseconds(exchange.context_ns());
  arguments["context_exposed_ms"] = Milliseconds(exchange.context_exposed_ns());
  if (exchange.expert_ns() == 0) return;
  arguments["expert_bytes"] = exchange.expert_bytes();
  arguments["expert_ms"] = Milliseconds(exchange.expert_ns());
  arguments["expert_exposed_ms"] = Milliseconds(exchange.expert_exposed_ns());
}

const char* CategoryOf(const v1::Instruction& instruction) {
  if (instruction.has_transfer()) return "transfer";
  return instruction.has_collective() && !IsJointPass(instruction) ? "collective" : "compute";
}

Json ArgumentsOf(const v1::Plan& plan, const v1::Program& program, const v1::Instruction& instruction) {
  Json arguments = {{"id", instruction.id()},
                    {"rank", program.rank()},
                    {"replica", program.replica()},
                    {"position", core::PositionOf(program)},
                    {"stage", instruction.stage()}};
  arguments["optype"] = core::OperationName(instruction);
  if (core::IsArrival(program, instruction)) arguments["transfer_id"] = instruction.transfer_id();
  if (!core::IsOfWholeIteration(instruction.op())) arguments["micro_batch"] = instruction.micro_batch();
  arguments["iteration"] = plan.iteration();
  if (instruction.has_transfer()) {
    const v1::Transfer& transfer = instruction.transfer();
    arguments["peer"] = transfer.peer();
    arguments["kind"] = transfer.kind() == v1::TRANSFER_KIND_GRADIENT ? "gradient" : "activation";
    arguments["shape"] = absl::StrCat("[", absl::StrJoin(transfer.shape(), ", "), "]");
    arguments["bytes"] = transfer.bytes();
    arguments["order"] = transfer.order();
  }
  if (IsJointPass(instruction))
    AddJointPass(instruction, arguments);
  else if (instruction.has_collective())
    arguments["bytes"] = instruction.collective().bytes();
  if (!instruction.deps().empty()) arguments["deps"] = absl::StrJoin(instruction.deps(), ", ");
  if (instruction.memory_acquired_bytes() > 0)
    arguments["memory_acquired_bytes"] = instruction.memory_acquired_bytes();
  if (instruction.memory_released_bytes() > 0)
    arguments["memory_released_bytes"] = instruction.memory_released_bytes();
  arguments["expected_ms"] = Milliseconds(instruction.expected_duration_ns());
  return arguments;
}

Json Metadata(const char* what, int64_t process, int thread, const char* key, const Json& value) {
  return {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{key, value}}}};
}

// Whether it is the first time.
bool IsNew(std::vector<bool>& known, uint32_t rank) {
  if (known.size() <= rank) known.resize(rank + 1, false);
  if (known[rank]) return false;
  known[rank] = true;
  return true;
}

}  // namespace

void Trace::AddPredicted(const v1::Plan& plan, int64_t origin_ns) {
  core::TimesByRank times(plan.programs_size());
  for (int rank = 0; rank < plan.programs_size(); ++rank)
    for (const v1::Instruction& instruction : plan.programs(rank).instructions())
      times[rank].push_back({instruction.id(), origin_ns + instruction.expected_start_ns(),
                             instruction.expected_duration_ns()});
  AddMeasured(plan, times);
}

void Trace::AddMeasured(const v1::Plan& plan, const core::TimesByRank& times_by_rank,
                        const v1::CostProfile& profile, const std::vector<double>& core_shares) {
  const int ranks = std::min(plan.programs_size(), static_cast<int>(times_by_rank.size()));
  const std::vector<GroupPlace> places = PlacesOf(plan);
  const std::vector<double> factors = core::SlowFactors(plan, profile);
  std::vector<std::map<uint32_t, core::WaitCause>> waits = core::WaitCauses(plan, times_by_rank);
  for (int rank = 0; rank < ranks; ++rank) {
    AddProgram(plan, rank,
               {.place = PlaceName(MeshOfReplica(plan, plan.programs(rank).replica()), places[rank]),
                .slow_factors = factors,
                .core_share = core_shares.empty() ? 1 : core_shares[rank],
                .waits = std::move(waits[rank])},
               times_by_rank[rank]);
  }
}

void Trace::AddBatchWait(const v1::Plan& plan, int rank, int64_t start_ns, int64_t duration_ns) {
  const v1::Program& program = plan.programs(rank);
  events_.push_back(Dump({{"ph", "X"},
                          {"name", "wait for the batch"},
                          {"cat", "wait"},
                          {"pid", rank},
                          {"tid", static_cast<int>(v1::STREAM_COMPUTE)},
                          {"ts", Microseconds(start_ns)},
                          {"dur", Microseconds(duration_ns)},
                          {"args",
                           {{"rank", program.rank()},
                            {"replica", program.replica()},
                            {"position", core::PositionOf(program)},
                            {"stage", core::PositionOf(program)},
                            {"optype", core::kBatchWaitName},
                            {"iteration", plan.iteration()}}}}));
}

void Trace::AddProgram(const v1::Plan& plan, int rank, const RankLook& look,
                       const std::vector<InstructionTime>& times) {
  const v1::Program& program = plan.programs(rank);
  AddNames(program, look.place);
  for (const InstructionTime& time : times) {
    if (time.id >= static_cast<uint32_t>(program.instructions_size())) continue;
    const v1::Instruction& instruction = program.instructions(static_cast<int>(time.id));
    AddSlice(plan, rank, instruction, look, time);
    if (instruction.op() == v1::OP_SEND || core::IsArrival(program, instruction))
      AddFlow(plan, rank, look.place, instruction, time);
  }
  AddMemory(program, times);
}

void Trace::AddNames(const v1::Program& program, const std::string& place) {
  const uint32_t rank = program.rank();
  if (!IsNew(named_, rank)) return;
  AddProcess(rank,
             absl::StrCat("rank ", rank, " (replica ", program.replica(), ", stage ",
                          absl::StrJoin(program.stages(), ", "), place.empty() ? "" : ", ", place, ")"),
             2 * int64_t{rank});
}

void Trace::AddProcess(int64_t process, const std::string& name, int64_t position) {
  events_.push_back(Dump(Metadata("process_name", process, 0, "name", name)));
  events_.push_back(Dump(Metadata("process_sort_index", process, 0, "sort_index", position)));
  for (int stream = v1::STREAM_COMPUTE; stream <= v1::STREAM_COLLECTIVE; ++stream) {
    events_.push_back(Dump(Metadata("thread_name", process, stream, "name", StreamName(stream))));
    events_.push_back(Dump(Metadata("thread_sort_index", process, stream, "sort_index", stream)));
  }
}

// Slices without arguments are no operations for who reads traces. What takes no time is left out.
void Trace::AddPlannedBeside(const v1::Plan& plan, int64_t origin_ns) {
  for (const v1::Program& program : plan.programs()) {
    const int64_t process = kPlannedProcesses + program.rank();
    if (IsNew(planned_named_, program.rank()))
      AddProcess(process, absl::StrCat("rank ", program.rank(), ", planned"),
                 2 * int64_t{program.rank()} + 1);
    for (const v1::Instruction& instruction : program.instructions()) {
      if (instruction.expected_duration_ns() == 0) continue;
      events_.push_back(Dump({{"ph", "X"},
                              {"name", NameOf(program, instruction)},
                              {"cat", "planned"},
                              {"pid", process},
                              {"tid", core::StreamOf(instruction)},
                              {"ts", Microseconds(origin_ns + instruction.expected_start_ns())},
                              {"dur", Microseconds(instruction.expected_duration_ns())}}));
    }
  }
}

void Trace::AddSlice(const v1::Plan& plan, int rank, const v1::Instruction& instruction, const RankLook& look,
                     const InstructionTime& time) {
  Json arguments = ArgumentsOf(plan, plan.programs(rank), instruction);
  if (core::IsPass(instruction.op())) {
    const double slow = core::SlownessOfPass(plan, plan.programs(rank), instruction, look.slow_factors);
    if (slow > 1) arguments["slow_factor"] = slow;
  }
  if (look.core_share < 1 && core::IsLonePass(instruction)) arguments["core_share"] = look.core_share;
  if (time.exchange_ns.has_value()) arguments["exchange_ms"] = Milliseconds(*time.exchange_ns);
  if (const auto computed =
          core::ComputedTimeOf(plan, plan.programs(rank), instruction, time, look.slow_factors[rank])) {
    arguments["computed_ms"] = Milliseconds(computed->ns);
    arguments["expected_computed_ms"] = Milliseconds(computed->expected_ns);
  }
  if (const auto wait = look.waits.find(instruction.id()); wait != look.waits.end()) {
    arguments["waits_for_rank"] = wait->second.rank;
    arguments["until_it_began_ms"] = Milliseconds(wait->second.late_ns);
    arguments["then_ms"] = Milliseconds(wait->second.transfer_ns);
  }
  events_.push_back(Dump({{"ph", "X"},
                          {"name", NameOf(plan.programs(rank), instruction)},
                          {"cat", CategoryOf(instruction)},
                          {"pid", rank},
                          {"tid", core::StreamOf(instruction)},
                          {"ts", Microseconds(time.start_ns)},
                          {"dur", Microseconds(time.duration_ns)},
                          {"args", std::move(arguments)}}));
}

// An arrow begins at the SEND and ends at the WAIT for the data: a RECV may be posted long before. Both
// slices name it by iteration, replica and order; equal places of stage groups have transfers of one order.
void Trace::AddFlow(const v1::Plan& plan, int rank, const std::string& place,
                    const v1::Instruction& instruction, const InstructionTime& time) {
  const bool begins = instruction.op() == v1::OP_SEND;
  const v1::Instruction& started = plan.programs(rank).instructions(
      static_cast<int>(begins ? instruction.id() : instruction.transfer_id()));
  Json event = {{"ph", begins ? "s" : "f"},
                {"name", "transfer"},
                {"cat", "transfer"},
                {"id", absl::StrCat(plan.iteration(), ".", plan.programs(rank).replica(), ".",
                                    started.transfer().order(), place.empty() ? "" : ".", place)},
                {"pid", rank},
                {"tid", core::StreamOf(instruction)},
                {"ts", Microseconds(begins ? time.start_ns : time.start_ns + time.duration_ns)}};
  if (!begins) event["bp"] = "e";
  events_.push_back(Dump(event));
}

void Trace::AddMemory(const v1::Program& program, const std::vector<InstructionTime>& times) {
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (const InstructionTime& time : times) {
    if (time.id >= static_cast<uint32_t>(program.instructions_size())) continue;
    const v1::Instruction& instruction = program.instructions(static_cast<int>(time.id));
    if (instruction.memory_acquired_bytes() > 0)
      changes.emplace_back(time.start_ns, instruction.memory_acquired_bytes());
    if (instruction.memory_released_bytes() > 0)
      changes.emplace_back(time.start_ns + time.duration_ns, -instruction.memory_released_bytes());
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t bytes = program.static_memory_bytes();
  // A counter has no line for a limit, and a second curve would be stacked on it.
  const std::string name = absl::StrFormat("memory (limit %.1f MB)", Megabytes(program.memory_limit_bytes()));
  for (const auto& [time, change] : changes) {
    bytes += change;
    events_.push_back(Dump({{"ph", "C"},
                            {"name", name},
                            {"pid", program.rank()},
                            {"ts", Microseconds(time)},
                            {"args", {{"MB", Megabytes(bytes)}}}}));
  }
}

std::string Trace::ToJson() const {
  return absl::StrCat("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", absl::StrJoin(events_, ",\n"),
                      "\n]}\n");
}

}  // namespace penstock::cli
