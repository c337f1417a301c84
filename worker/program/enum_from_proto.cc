#include "worker/program/enum_from_proto.h"

#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

template <typename Proto, typename Plain>
absl::StatusOr<Plain> Find(std::span<const std::pair<Proto, Plain>> known, Proto value,
                           const std::string& name, absl::string_view field) {
  for (const auto& [proto, plain] : known) {
    if (proto == value) return plain;
  }
  if (value == Proto()) return absl::InvalidArgumentError(absl::StrCat(field, " is not set (", name, ")"));
  return absl::UnimplementedError(absl::StrCat(field, " is ", name, " (", static_cast<int>(value),
                                               "): this worker does not know it; use a newer worker"));
}

constexpr std::pair<v1::DataType, DataType> kDataTypes[] = {{v1::DATA_TYPE_FLOAT64, DataType::kFloat64},
                                                            {v1::DATA_TYPE_FLOAT32, DataType::kFloat32},
                                                            {v1::DATA_TYPE_BFLOAT16, DataType::kBFloat16}};

constexpr std::pair<v1::Layout, Layout> kLayouts[] = {{v1::LAYOUT_PADDED, Layout::kPadded},
                                                      {v1::LAYOUT_PACKED, Layout::kPacked},
                                                      {v1::LAYOUT_CONCATENATED, Layout::kConcatenated}};

constexpr std::pair<v1::Op, Op> kOps[] = {{v1::OP_LOAD, Op::kLoad},
                                          {v1::OP_FORWARD, Op::kForward},
                                          {v1::OP_BACKWARD, Op::kBackward},
                                          {v1::OP_BACKWARD_INPUT, Op::kBackwardInput},
                                          {v1::OP_BACKWARD_WEIGHT, Op::kBackwardWeight},
                                          {v1::OP_SEND, Op::kSend},
                                          {v1::OP_RECV, Op::kRecv},
                                          {v1::OP_WAIT, Op::kWait},
                                          {v1::OP_FREE, Op::kFree},
                                          {v1::OP_REDUCE_GRADIENTS, Op::kReduceGradients},
                                          {v1::OP_RESHARD, Op::kReshard},
                                          {v1::OP_OPTIMIZER_STEP, Op::kOptimizerStep}};

constexpr std::pair<v1::Stream, Stream> kStreams[] = {{v1::STREAM_COMPUTE, Stream::kCompute},
                                                      {v1::STREAM_PREVIOUS, Stream::kPrevious},
                                                      {v1::STREAM_NEXT, Stream::kNext},
                                                      {v1::STREAM_COLLECTIVE, Stream::kCollective}};

constexpr std::pair<v1::Architecture, Architecture> kArchitectures[] = {
    {v1::ARCHITECTURE_GPT, Architecture::kGpt}, {v1::ARCHITECTURE_T5, Architecture::kT5}};

constexpr std::pair<v1::FeedForward, FeedForward> kFeedForwards[] = {
    {v1::FEED_FORWARD_RELU, FeedForward::kRelu},
    {v1::FEED_FORWARD_GELU, FeedForward::kGelu},
    {v1::FEED_FORWARD_GATED_GELU, FeedForward::kGatedGelu},
    {v1::FEED_FORWARD_GATED_SILU, FeedForward::kGatedSilu}};

constexpr std::pair<v1::Position, Position> kPositions[] = {
    {v1::POSITION_LEARNED, Position::kLearned},
    {v1::POSITION_ROTARY, Position::kRotary},
    {v1::POSITION_RELATIVE_BIAS, Position::kRelativeBias}};

constexpr std::pair<v1::Norm, Norm> kNorms[] = {{v1::NORM_LAYER, Norm::kLayer}, {v1::NORM_RMS, Norm::kRms}};

constexpr std::pair<v1::Biases, Biases> kBiases[] = {{v1::BIASES_NONE, Biases::kNone},
                                                     {v1::BIASES_ALL, Biases::kAll},
                                                     {v1::BIASES_QUERY_KEY_VALUE, Biases::kQueryKeyValue}};

constexpr std::pair<v1::RateDecay, RateDecay> kRateDecays[] = {
    {v1::RATE_DECAY_COSINE, RateDecay::kCosine},
    {v1::RATE_DECAY_LINEAR, RateDecay::kLinear},
    {v1::RATE_DECAY_CONSTANT, RateDecay::kConstant},
    {v1::RATE_DECAY_COOLDOWN, RateDecay::kCooldown}};

constexpr std::pair<v1::RotaryScaling, RotaryScaling> kRotaryScalings[] = {
    {v1::ROTARY_SCALING_LINEAR, RotaryScaling::kLinear},
    {v1::ROTARY_SCALING_LLAMA3, RotaryScaling::kLlama3},
    {v1::ROTARY_SCALING_YARN, RotaryScaling::kYarn},
    {v1::ROTARY_SCALING_LONGROPE, RotaryScaling::kLongRope}};

constexpr std::pair<v1::NormPlacement, NormPlacement> kNormPlacements[] = {
    {v1::NORM_PLACEMENT_BEFORE, NormPlacement::kBefore},
    {v1::NORM_PLACEMENT_AFTER, NormPlacement::kAfter},
    {v1::NORM_PLACEMENT_BOTH, NormPlacement::kBoth}};

constexpr std::pair<v1::TransferKind, TransferKind> kTransferKinds[] = {
    {v1::TRANSFER_KIND_ACTIVATION, TransferKind::kActivation},
    {v1::TRANSFER_KIND_GRADIENT, TransferKind::kGradient}};

}  // namespace

absl::StatusOr<DataType> DataTypeFromProto(v1::DataType value, absl::string_view field) {
  return Find<v1::DataType, DataType>(kDataTypes, value, v1::DataType_Name(value), field);
}

absl::StatusOr<Architecture> ArchitectureFromProto(v1::Architecture value, absl::string_view field) {
  return Find<v1::Architecture, Architecture>(kArchitectures, value, v1::Architecture_Name(value), field);
}

absl::StatusOr<FeedForward> FeedForwardFromProto(v1::FeedForward value, absl::string_view field) {
  return Find<v1::FeedForward, FeedForward>(kFeedForwards, value, v1::FeedForward_Name(value), field);
}

absl::StatusOr<Position> PositionFromProto(v1::Position value, absl::string_view field) {
  return Find<v1::Position, Position>(kPositions, value, v1::Position_Name(value), field);
}

absl::StatusOr<Norm> NormFromProto(v1::Norm value, absl::string_view field) {
  return Find<v1::Norm, Norm>(kNorms, value, v1::Norm_Name(value), field);
}

absl::StatusOr<Biases> BiasesFromProto(v1::Biases value, absl::string_view field) {
  return Find<v1::Biases, Biases>(kBiases, value, v1::Biases_Name(value), field);
}

absl::StatusOr<RateDecay> RateDecayFromProto(v1::RateDecay value, absl::string_view field) {
  return Find<v1::RateDecay, RateDecay>(kRateDecays, value, v1::RateDecay_Name(value), field);
}

absl::StatusOr<RotaryScaling> RotaryScalingFromProto(v1::RotaryScaling value, absl::string_view field) {
  return Find<v1::RotaryScaling, RotaryScaling>(kRotaryScalings, value, v1::RotaryScaling_Name(value), field);
}

absl::StatusOr<NormPlacement> NormPlacementFromProto(v1::NormPlacement value, absl::string_view field) {
  return Find<v1::NormPlacement, NormPlacement>(kNormPlacements, value, v1::NormPlacement_Name(value), field);
}

absl::StatusOr<Layout> LayoutFromProto(v1::Layout value, absl::string_view field) {
  return Find<v1::Layout, Layout>(kLayouts, value, v1::Layout_Name(value), field);
}

absl::StatusOr<Op> OpFromProto(v1::Op value, absl::string_view field) {
  return Find<v1::Op, Op>(kOps, value, v1::Op_Name(value), field);
}

absl::StatusOr<Stream> StreamFromProto(v1::Stream value, absl::string_view field) {
  return Find<v1::Stream, Stream>(kStreams, value, v1::Stream_Name(value), field);
}

absl::StatusOr<TransferKind> TransferKindFromProto(v1::TransferKind value, absl::string_view field) {
  return Find<v1::TransferKind, TransferKind>(kTransferKinds, value, v1::TransferKind_Name(value), field);
}

}  // namespace penstock::worker
