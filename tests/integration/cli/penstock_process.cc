#include "tests/integration/cli/penstock_process.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "common/process/child_process.h"
#include "penstock/v1/job.pb.h"

namespace penstock {
namespace {

void FillLayer(v1::LayerCost& layer, const char* name, double parameter_bytes) {
  layer.set_name(name);
  layer.set_parameter_bytes(parameter_bytes);
  layer.mutable_forward()->set_fixed_ns(20'000);
  layer.mutable_forward()->set_target_token_ns(400);
  layer.mutable_forward()->set_target_square_ns(0.5);
  layer.set_backward_ratio_none(2);
  layer.set_backward_ratio_selective(2.2);
  layer.set_backward_ratio_full(3);
  layer.set_backward_input_share(0.5);
  layer.mutable_stored_none()->set_target_token_bytes(4000);
  layer.mutable_stored_selective()->set_target_token_bytes(3000);
  layer.mutable_stored_full()->set_target_token_bytes(256);
  layer.mutable_peak()->set_target_token_bytes(4000);
}

v1::ProfileFile SmallProfile(bool dense_layers) {
  v1::ProfileFile file;
  v1::ModelSpec& model = *file.mutable_model();
  model.set_architecture(v1::ARCHITECTURE_GPT);
  model.set_layers(4);
  model.set_hidden(64);
  model.set_heads(4);
  model.set_ffn(256);
  model.set_vocab(256);
  model.set_max_sequence_length(512);
  model.set_dtype(v1::DATA_TYPE_FLOAT32);
  v1::CostProfile& profile = *file.mutable_profile();
  profile.set_name("small");
  profile.set_version(1);
  FillLayer(*profile.add_layers(), "layer", 200'000);
  if (dense_layers) FillLayer(*profile.add_layers(), "dense", 100'000);
  FillLayer(*profile.add_layers(), "head", 65'536);
  profile.set_embedding_parameter_bytes(196'608);
  profile.mutable_embedding_forward()->set_target_token_ns(20);
  profile.set_state_bytes_per_parameter_byte(4);
  profile.set_optimizer_ns_per_parameter_byte(0.1);
  v1::Cluster& cluster = *profile.mutable_cluster();
  cluster.set_memory_bytes(100'000'000);
  cluster.set_intra_node_bytes_per_second(1e9);
  cluster.set_inter_node_bytes_per_second(1e9);
  cluster.set_intra_node_latency_ns(10'000);
  cluster.set_inter_node_latency_ns(10'000);
  cluster.set_gpus_per_node(8);
  profile.set_bytes_per_element(4);
  return file;
}

}  // namespace

Ended Penstock::Run(const std::vector<std::string>& arguments, absl::Duration limit) {
  const std::string run = std::to_string(runs_++);
  ChildOptions options{.arguments = {PENSTOCK_BINARY},
                       .log_path = folder_.Path(run + ".err"),
                       .output_path = folder_.Path(run + ".out")};
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  auto process = ChildProcess::Start(options);
  EXPECT_TRUE(process.ok()) << process.status();
  if (!process.ok()) return {};
  const auto status = (*process)->WaitFor(limit);
  return {status.has_value() ? status->code : -1, folder_.Read(run + ".out"), folder_.Read(run + ".err")};
}

std::string Penstock::WriteProfile(bool dense_layers) const {
  std::string json;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(SmallProfile(dense_layers), &json).ok());
  return folder_.Write("profile.json", json);
}

std::string Penstock::WriteLengths(int samples) const {
  std::string text = "task,input_tokens,target_tokens\n";
  for (int i = 0; i < samples; ++i)
    text += "t," + std::to_string(i % 5 * 8) + "," + std::to_string(4 + i % 7) + "\n";
  return folder_.Write("lengths.csv", text);
}

std::vector<std::string> Penstock::PlanningCommand(const std::string& command,
                                                   const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = {command,           "--profile", WriteProfile(), "--lengths",
                                        WriteLengths(100), "--rows",    "0:24"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace penstock
