#include "tests/system/harness/tiny_job.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "common/dataset/indexed_dataset_writer.h"

namespace penstock::testing {

v1::JobSpec TinyJob() {
  v1::JobSpec job;
  const bool parsed = google::protobuf::TextFormat::ParseFromString(
      R"pb(
        job_id: "tiny"
        # Two runs have the same plans, and so the same bits.
        fixed_costs: true
        model {
          architecture: ARCHITECTURE_GPT
          layers: 4
          hidden: 16
          heads: 2
          ffn: 32
          vocab: 29
          max_sequence_length: 24
          dtype: DATA_TYPE_FLOAT64
        }
        mesh { pipeline: 1 data: 1 }
        planning {
          policy: POLICY_DYNAMIC
          schedule: SCHEDULE_ONE_FORWARD_ONE_BACKWARD
          stage_split: STAGE_SPLIT_EVEN
          recompute: RECOMPUTE_NONE
          effort: EFFORT_FAST
        }
        training {
          seed: 11
          learning_rate { peak: 0.003 minimum: 0.0003 warmup_iterations: 2 decay_iterations: 5 }
          epsilon: 0.0001
          weight_decay: 0.1
          clip_norm: 0.5
          iterations: 3
        }
        profile {
          name: "tiny"
          version: 1
          layers {
            name: "layer"
            parameter_bytes: 17280
            forward { fixed_ns: 1000 target_token_ns: 400 target_square_ns: 10 }
            backward_ratio_none: 2
            backward_ratio_selective: 2.3
            backward_ratio_full: 3
            backward_input_share: 0.5
            stored_none { target_token_bytes: 4352 }
            stored_selective { target_token_bytes: 3000 }
            stored_full { target_token_bytes: 128 }
            peak { target_token_bytes: 4352 }
          }
          layers {
            name: "head"
            parameter_bytes: 3712
            forward { fixed_ns: 1000 target_token_ns: 200 }
            backward_ratio_none: 2
            backward_ratio_selective: 2
            backward_ratio_full: 2
            backward_input_share: 0.5
            stored_none { target_token_bytes: 464 }
            stored_selective { target_token_bytes: 464 }
            stored_full { target_token_bytes: 464 }
          }
          embedding_parameter_bytes: 6784
          embedding_forward { fixed_ns: 5000 target_token_ns: 20 }
          state_bytes_per_parameter_byte: 4
          sharded_state_bytes_per_parameter_byte: 2
          optimizer_ns_per_parameter_byte: 0.5
          cluster {
            memory_bytes: 1073741824
            intra_node_bytes_per_second: 2e9
            inter_node_bytes_per_second: 2e9
            intra_node_latency_ns: 100
            inter_node_latency_ns: 100
            gpus_per_node: 8
          }
          bytes_per_element: 8
        }
      )pb",
      &job);
  EXPECT_TRUE(parsed);
  return job;
}

v1::JobSpec TinyJobOnFourRanks(const std::string& job_id, uint64_t iterations) {
  v1::JobSpec job = TinyJob();
  job.set_job_id(job_id);
  job.mutable_mesh()->set_pipeline(2);
  job.mutable_mesh()->set_data(2);
  job.mutable_training()->set_iterations(iterations);
  return job;
}

std::vector<TinySample> TinySamples(size_t count) {
  constexpr uint32_t kLongest = 24;
  constexpr int32_t kVocab = 29;
  std::vector<TinySample> samples(count);
  // Knuth's multiplicative hash: spread, and the same everywhere.
  const auto spread = [](uint32_t value) { return (value * 2654435761u) >> 16; };
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t tokens = 1 + spread(i + 1) % kLongest;
    const uint32_t input = i % 3 == 0 ? 0 : spread(i + 101) % tokens;
    for (uint32_t p = 0; p < tokens; ++p) {
      const auto token = static_cast<int32_t>(spread(i * 64 + p + 1001) % kVocab);
      (p < input ? samples[i].input : samples[i].target).push_back(token);
    }
  }
  return samples;
}

void WriteTinyDataset(const std::string& prefix, const std::vector<TinySample>& samples) {
  auto writer = IndexedDatasetWriter::Create(prefix, {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const TinySample& sample : samples) {
    const absl::Status status = (*writer)->Add(sample.input, sample.target, sample.weights);
    ASSERT_TRUE(status.ok()) << status;
  }
  const absl::Status status = (*writer)->Finish();
  ASSERT_TRUE(status.ok()) << status;
}

std::vector<v1::Batch> TinyBatches(const std::vector<TinySample>& samples, size_t size, uint64_t iterations) {
  std::vector<v1::Batch> batches(iterations);
  for (uint64_t i = 0; i < iterations; ++i) {
    batches[i].set_iteration(i);
    for (size_t j = 0; j < size; ++j) {
      const size_t id = (i * size + j) % samples.size();
      v1::Sample& sample = *batches[i].add_samples();
      sample.set_sample_id(id);
      sample.set_input_tokens(static_cast<uint32_t>(samples[id].input.size()));
      sample.set_target_tokens(static_cast<uint32_t>(samples[id].target.size()));
    }
  }
  return batches;
}

}  // namespace penstock::testing
