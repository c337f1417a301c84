// A cost profile of a GPT of round numbers.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "penstock/v1/job.pb.h"

namespace penstock::cli {

inline v1::ProfileFile SomeProfile() {
  v1::ProfileFile file;
  EXPECT_TRUE(
      google::protobuf::TextFormat::ParseFromString(R"pb(
                                                      model {
                                                        architecture: ARCHITECTURE_GPT
                                                        layers: 2
                                                        hidden: 8
                                                        heads: 2
                                                        ffn: 16
                                                        vocab: 100
                                                        max_sequence_length: 300
                                                      }
                                                      profile {
                                                        layers {
                                                          name: "layer"
                                                          parameter_bytes: 1000
                                                          forward { fixed_ns: 1000000 target_token_ns: 1000 }
                                                          backward_ratio_none: 2
                                                          backward_ratio_selective: 2
                                                          backward_ratio_full: 3
                                                          backward_input_share: 0.5
                                                          stored_none { target_token_bytes: 10000 }
                                                          stored_selective { target_token_bytes: 10000 }
                                                          stored_full { target_token_bytes: 100 }
                                                          peak { target_token_bytes: 1 }
                                                        }
                                                        layers {
                                                          name: "head"
                                                          parameter_bytes: 1000
                                                          forward { target_token_ns: 2000 }
                                                          backward_ratio_none: 1
                                                          backward_ratio_selective: 1
                                                          backward_ratio_full: 1
                                                          backward_input_share: 0.5
                                                          loss_tokens_only: true
                                                          stored_none {}
                                                          stored_selective {}
                                                          stored_full {}
                                                          peak { target_token_bytes: 1 }
                                                        }
                                                        embedding_parameter_bytes: 800
                                                        embedding_forward { target_token_ns: 10 }
                                                        state_bytes_per_parameter_byte: 4
                                                        cluster {
                                                          memory_bytes: 1000000000
                                                          intra_node_bytes_per_second: 1e9
                                                          inter_node_bytes_per_second: 1e9
                                                          gpus_per_node: 8
                                                        }
                                                        bytes_per_element: 4
                                                      })pb",
                                                    &file));
  return file;
}

}  // namespace penstock::cli
