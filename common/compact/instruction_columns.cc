#include "common/compact/instruction_columns.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/compact/deflate.h"
#include "common/status/status_macros.h"
#include "penstock/v1/compact.pb.h"

namespace penstock {
namespace {

using Column = google::protobuf::RepeatedField<int64_t>;

// Those of differences, in the order of the contract.
enum ColumnId {
  kMicroBatch,
  kDeps,
  kAcquired,
  kReleased,
  kStart,
  kDuration,
  kShape,
  kTransferBytes,
  kTransferSequence,
  kTransferOrder,
  kTransferId,
  kCollectiveSequence,
  kCollectiveBytes,
  kOwnDuration,
  kExchange,
  kColumns
};

constexpr std::array<const char*, kColumns> kNames = {"micro_batch",
                                                      "deps",
                                                      "memory_acquired_bytes",
                                                      "memory_released_bytes",
                                                      "expected_start_ns",
                                                      "expected_duration_ns",
                                                      "shape",
                                                      "transfer_bytes",
                                                      "transfer_sequence",
                                                      "transfer_order",
                                                      "transfer_id",
                                                      "collective_sequence",
                                                      "collective_bytes",
                                                      "own_duration_ns",
                                                      "exchange"};

std::array<Column*, kColumns> ColumnsOf(v1::InstructionColumns& columns) {
  return {columns.mutable_micro_batch(),
          columns.mutable_deps(),
          columns.mutable_memory_acquired_bytes(),
          columns.mutable_memory_released_bytes(),
          columns.mutable_expected_start_ns(),
          columns.mutable_expected_duration_ns(),
          columns.mutable_shape(),
          columns.mutable_transfer_bytes(),
          columns.mutable_transfer_sequence(),
          columns.mutable_transfer_order(),
          columns.mutable_transfer_id(),
          columns.mutable_collective_sequence(),
          columns.mutable_collective_bytes(),
          columns.mutable_own_duration_ns(),
          columns.mutable_exchange()};
}

constexpr int kMostDimensions = 8;
// Of a stage and micro-batch, and of a stage beside them.
constexpr size_t kMostOfMicroBatch = 64;
// However many micro-batches there are: what kMostColumnBytes have room for.
constexpr size_t kMostOfProgram = kMostColumnBytes / 16;
constexpr int kExchangeValues = 12;

int64_t Difference(int64_t value, int64_t prediction) {
  return static_cast<int64_t>(static_cast<uint64_t>(value) - static_cast<uint64_t>(prediction));
}
int64_t Sum(int64_t prediction, int64_t difference) {
  return static_cast<int64_t>(static_cast<uint64_t>(prediction) + static_cast<uint64_t>(difference));
}

// Puts differences into columns.
class ColumnWriter {
 public:
  explicit ColumnWriter(v1::InstructionColumns& columns) : columns_(ColumnsOf(columns)) {}

  // Returns `value`.
  template <typename Value>
  Value Field(ColumnId column, Value prediction, Value value) {
    columns_[column]->Add(Difference(static_cast<int64_t>(value), static_cast<int64_t>(prediction)));
    return value;
  }
  void Check(bool) {}

 private:
  const std::array<Column*, kColumns> columns_;
};

// Takes them out again.
class ColumnReader {
 public:
  explicit ColumnReader(v1::InstructionColumns& columns) : columns_(ColumnsOf(columns)) {}

  // Returns the value; what it was before does not matter.
  template <typename Value>
  Value Field(ColumnId column, Value prediction, Value) {
    const int64_t sum = Sum(static_cast<int64_t>(prediction), columns_[column]->Get(next_[column]++));
    const auto value = static_cast<Value>(sum);
    wrong_ = wrong_ || static_cast<int64_t>(value) != sum;
    return value;
  }
  void Check(bool fits) { wrong_ = wrong_ || !fits; }
  // A value did not fit into its field.
  bool wrong() const { return wrong_; }

 private:
  const std::array<Column*, kColumns> columns_;
  std::array<int, kColumns> next_ = {};
  bool wrong_ = false;
};

// One instruction through all columns, in one order for whoever writes and reads. `at` is a ColumnWriter or a
// ColumnReader.
template <typename At>
class Passage {
 public:
  Passage(At& at, InstructionPredictions& predictions) : at_(at), predictions_(predictions) {}

  void Pass(const v1::InstructionKind& kind, v1::Instruction& now) {
    now.set_micro_batch(at_.Field(kMicroBatch, predictions_.MicroBatch(), now.micro_batch()));
    for (int place = 0; place < static_cast<int>(kind.deps()); ++place)
      now.set_deps(place, at_.Field(kDeps, predictions_.Dep(place), now.deps(place)));
    now.set_memory_acquired_bytes(
        at_.Field(kAcquired, Scaled(&v1::Instruction::memory_acquired_bytes), now.memory_acquired_bytes()));
    now.set_memory_released_bytes(
        at_.Field(kReleased, Scaled(&v1::Instruction::memory_released_bytes), now.memory_released_bytes()));
    now.set_expected_start_ns(at_.Field(kStart, predictions_.Start(), now.expected_start_ns()));
    now.set_expected_duration_ns(at_.Field(kDuration, predictions_.Duration(), now.expected_duration_ns()));
    if (now.has_transfer()) PassTransfer(*now.mutable_transfer());
    if (kind.has_transfer_id())
      now.set_transfer_id(at_.Field(kTransferId, predictions_.TransferId(), now.transfer_id()));
    if (now.has_collective()) PassCollective(*now.mutable_collective());
    if (kind.has_own_duration())
      now.set_own_duration_ns(at_.Field(kOwnDuration, now.expected_duration_ns(), now.own_duration_ns()));
    if (now.has_exchange()) PassExchange(*now.mutable_exchange());
  }

 private:
  int64_t Scaled(int64_t (v1::Instruction::*get)() const) const {
    return predictions_.Scaled([get](const v1::Instruction& before) { return (before.*get)(); });
  }

  void PassTransfer(v1::Transfer& transfer) {
    if (!transfer.shape().empty())
      transfer.set_shape(0, at_.Field(kShape, predictions_.Shape(), transfer.shape(0)));
    transfer.set_bytes(at_.Field(kTransferBytes, predictions_.TransferBytes(), transfer.bytes()));
    transfer.set_sequence(at_.Field(kTransferSequence, predictions_.TransferSequence(), transfer.sequence()));
    transfer.set_order(at_.Field(kTransferOrder, predictions_.TransferOrder(), transfer.order()));
  }

  void PassCollective(v1::Collective& collective) {
    collective.set_sequence(
        at_.Field(kCollectiveSequence, predictions_.CollectiveSequence(), collective.sequence()));
    const auto bytes = static_cast<uint64_t>(
        predictions_.Scaled([](const v1::Instruction& before) { return before.collective().bytes(); }));
    collective.set_bytes(at_.Field(kCollectiveBytes, bytes, collective.bytes()));
  }

  template <typename Value>
  void Exchanged(v1::PassExchange& exchange, Value (v1::PassExchange::*get)() const,
                 void (v1::PassExchange::*set)(Value)) {
    const int64_t prediction = predictions_.Scaled(
        [get](const v1::Instruction& before) { return static_cast<int64_t>((before.exchange().*get)()); });
    const auto value = static_cast<int64_t>((exchange.*get)());
    const int64_t passed = at_.Field(kExchange, prediction, value);
    at_.Check(static_cast<int64_t>(static_cast<Value>(passed)) == passed);
    (exchange.*set)(static_cast<Value>(passed));
  }

  void PassExchange(v1::PassExchange& exchange) {
    using X = v1::PassExchange;
    Exchanged(exchange, &X::tensor_bytes, &X::set_tensor_bytes);
    Exchanged(exchange, &X::tensor_ns, &X::set_tensor_ns);
    Exchanged(exchange, &X::context_sent_bytes, &X::set_context_sent_bytes);
    Exchanged(exchange, &X::context_received_bytes, &X::set_context_received_bytes);
    Exchanged(exchange, &X::context_ns, &X::set_context_ns);
    Exchanged(exchange, &X::context_exposed_ns, &X::set_context_exposed_ns);
    Exchanged(exchange, &X::expert_bytes, &X::set_expert_bytes);
    Exchanged(exchange, &X::expert_ns, &X::set_expert_ns);
    Exchanged(exchange, &X::expert_exposed_ns, &X::set_expert_exposed_ns);
    Exchanged(exchange, &X::products_beside_return, &X::set_products_beside_return);
    Exchanged(exchange, &X::products_beside_arrival, &X::set_products_beside_arrival);
    Exchanged(exchange, &X::others_beside_arrival, &X::set_others_beside_arrival);
  }

  At& at_;
  InstructionPredictions& predictions_;
};

v1::InstructionKind KindOf(const v1::Instruction& instruction) {
  v1::InstructionKind kind;
  v1::Instruction* const common = kind.mutable_common();
  common->set_op(instruction.op());
  common->set_stream(instruction.stream());
  common->set_stage(instruction.stage());
  common->set_part(instruction.part());
  common->set_parts(instruction.parts());
  if (instruction.has_transfer()) {
    v1::Transfer* const transfer = common->mutable_transfer();
    transfer->set_peer(instruction.transfer().peer());
    transfer->set_kind(instruction.transfer().kind());
    transfer->set_dtype(instruction.transfer().dtype());
    *transfer->mutable_shape() = instruction.transfer().shape();
    if (!transfer->shape().empty()) transfer->set_shape(0, 0);
  }
  if (instruction.has_collective()) common->mutable_collective()->set_group(instruction.collective().group());
  if (instruction.has_exchange()) common->mutable_exchange();
  kind.set_deps(static_cast<uint32_t>(instruction.deps_size()));
  kind.set_has_transfer_id(instruction.transfer_id() != 0 || instruction.op() == v1::OP_WAIT);
  kind.set_has_own_duration(instruction.own_duration_ns() != 0 || instruction.has_exchange());
  return kind;
}

// Only what a kind may set: it is repeated with every instruction.
void Begin(const v1::InstructionKind& kind, uint32_t id, v1::Instruction* instruction) {
  const v1::Instruction& common = kind.common();
  instruction->set_id(id);
  instruction->set_op(common.op());
  instruction->set_stream(common.stream());
  instruction->set_stage(common.stage());
  instruction->set_part(common.part());
  instruction->set_parts(common.parts());
  instruction->mutable_deps()->Resize(static_cast<int>(kind.deps()), 0);
  if (common.has_transfer()) {
    v1::Transfer* const transfer = instruction->mutable_transfer();
    transfer->set_peer(common.transfer().peer());
    transfer->set_kind(common.transfer().kind());
    transfer->set_dtype(common.transfer().dtype());
    *transfer->mutable_shape() = common.transfer().shape();
  }
  if (common.has_collective()) instruction->mutable_collective()->set_group(common.collective().group());
  if (common.has_exchange()) instruction->mutable_exchange();
}

bool MayBePacked(const Instructions& instructions) {
  for (int position = 0; position < instructions.size(); ++position) {
    const v1::Instruction& instruction = instructions.at(position);
    if (instruction.id() != static_cast<uint32_t>(position) ||
        instruction.transfer().shape_size() > kMostDimensions)
      return false;
  }
  return static_cast<size_t>(instructions.size()) <= kMostOfProgram;
}

using Sizes = std::array<size_t, kColumns>;

// The values of columns that an instruction of this kind takes.
void AddValues(const v1::InstructionKind& kind, Sizes& sizes) {
  for (const ColumnId column : {kMicroBatch, kAcquired, kReleased, kStart, kDuration}) ++sizes[column];
  sizes[kDeps] += kind.deps();
  if (kind.common().has_transfer()) {
    for (const ColumnId column : {kTransferBytes, kTransferSequence, kTransferOrder}) ++sizes[column];
    if (!kind.common().transfer().shape().empty()) ++sizes[kShape];
  }
  if (kind.has_transfer_id()) ++sizes[kTransferId];
  if (kind.common().has_collective())
    for (const ColumnId column : {kCollectiveSequence, kCollectiveBytes}) ++sizes[column];
  if (kind.has_own_duration()) ++sizes[kOwnDuration];
  if (kind.common().has_exchange()) sizes[kExchange] += kExchangeValues;
}

absl::Status CheckSizes(v1::InstructionColumns& columns) {
  for (int i = 0; i < columns.kinds_size(); ++i) {
    const int dimensions = columns.kinds(i).common().transfer().shape_size();
    if (dimensions > kMostDimensions)
      return absl::InvalidArgumentError(
          absl::StrCat("kinds[", i, "].common.transfer.shape has ", dimensions, " numbers"));
  }
  Sizes needed = {};
  for (int i = 0; i < columns.kind_size(); ++i) {
    if (columns.kind(i) >= static_cast<uint32_t>(columns.kinds_size()))
      return absl::InvalidArgumentError(
          absl::StrCat("kind[", i, "] is ", columns.kind(i), ", of ", columns.kinds_size(), " kinds"));
    AddValues(columns.kinds(static_cast<int>(columns.kind(i))), needed);
  }
  const auto there = ColumnsOf(columns);
  for (int column = 0; column < kColumns; ++column) {
    if (static_cast<size_t>(there[column]->size()) == needed[column]) continue;
    return absl::InvalidArgumentError(absl::StrCat(kNames[column], " has ", there[column]->size(),
                                                   " values, and the instructions take ", needed[column]));
  }
  return absl::OkStatus();
}

// Columns that have all values that their instructions take.
absl::StatusOr<v1::InstructionColumns> ReadColumns(absl::string_view packed, size_t most) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes, Inflate(packed, kMostColumnBytes));
  v1::InstructionColumns columns;
  if (!columns.ParseFromString(bytes))
    return absl::InvalidArgumentError("not a serialised InstructionColumns");
  if (static_cast<size_t>(columns.kind_size()) > most) {
    return absl::ResourceExhaustedError(absl::StrCat(
        columns.kind_size(), " instructions, and its stages and micro-batches make ", most, " at most"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckSizes(columns));
  return columns;
}

}  // namespace

std::vector<uint64_t> TokensOf(const google::protobuf::RepeatedPtrField<v1::MicroBatch>& micro_batches) {
  std::vector<uint64_t> tokens;
  tokens.reserve(micro_batches.size());
  for (const v1::MicroBatch& micro_batch : micro_batches) tokens.push_back(micro_batch.computed_tokens());
  return tokens;
}

size_t MostInstructions(const v1::Program& program, absl::Span<const uint64_t> tokens) {
  const size_t stages = static_cast<size_t>(program.stages_size());
  return std::min(kMostOfProgram, kMostOfMicroBatch * stages * (tokens.size() + 1));
}

std::optional<std::string> PackInstructions(const Instructions& instructions,
                                            absl::Span<const uint64_t> tokens) {
  if (!MayBePacked(instructions)) return std::nullopt;
  v1::InstructionColumns columns;
  InstructionPredictions predictions(tokens, &instructions);
  ColumnWriter writer(columns);
  Passage<ColumnWriter> into(writer, predictions);
  std::map<std::string, uint32_t> kinds;
  for (const v1::Instruction& instruction : instructions) {
    const v1::InstructionKind kind = KindOf(instruction);
    const auto [found, is_new] =
        kinds.try_emplace(kind.SerializeAsString(), static_cast<uint32_t>(columns.kinds_size()));
    if (is_new) *columns.add_kinds() = kind;
    columns.add_kind(found->second);
    predictions.Begin(found->second);
    v1::Instruction same = instruction;
    into.Pass(kind, same);
    predictions.End();
  }
  if (columns.ByteSizeLong() > kMostColumnBytes) return std::nullopt;
  return Deflate(columns.SerializeAsString());
}

absl::StatusOr<std::vector<v1::Op>> UnpackOps(absl::string_view packed, size_t most) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::InstructionColumns columns, ReadColumns(packed, most));
  std::vector<v1::Op> ops;
  ops.reserve(columns.kind_size());
  for (const uint32_t kind : columns.kind())
    ops.push_back(columns.kinds(static_cast<int>(kind)).common().op());
  return ops;
}

absl::Status UnpackInstructions(absl::string_view packed, absl::Span<const uint64_t> tokens, size_t most,
                                Instructions* instructions) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::InstructionColumns columns, ReadColumns(packed, most));
  instructions->Reserve(columns.kind_size());
  InstructionPredictions predictions(tokens, instructions);
  ColumnReader reader(columns);
  Passage<ColumnReader> from(reader, predictions);
  for (int position = 0; position < columns.kind_size(); ++position) {
    const v1::InstructionKind& kind = columns.kinds(static_cast<int>(columns.kind(position)));
    v1::Instruction* const instruction = instructions->Add();
    Begin(kind, static_cast<uint32_t>(position), instruction);
    predictions.Begin(columns.kind(position));
    from.Pass(kind, *instruction);
    if (reader.wrong()) {
      return absl::InvalidArgumentError(
          absl::StrCat("a column has a value that instruction ", position, " cannot hold"));
    }
    predictions.End();
  }
  return absl::OkStatus();
}

}  // namespace penstock
