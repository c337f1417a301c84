#include "planner/cli/profile/profile_figures.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

namespace penstock::cli {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

v1::ProfileFile SomeProfile() {
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

const ProfileFigures::Row& RowOf(const ProfileFigures& figures, const std::string& what) {
  static const ProfileFigures::Row kNone;
  for (const ProfileFigures::Row& row : figures.rows)
    if (row.what == what) return row;
  ADD_FAILURE() << what;
  return kNone;
}

TEST(ProfileFiguresTest, AreThoseOfOneSampleOfEachLength) {
  const auto figures = FiguresOf(SomeProfile());
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_THAT(figures->lengths, ElementsAre(64, 256, 300));
  EXPECT_THAT(RowOf(*figures, "layer, forward, ms").values,
              ElementsAre(Optional(DoubleNear(1.064, 1e-9)), Optional(DoubleNear(1.256, 1e-9)),
                          Optional(DoubleNear(1.3, 1e-9))));
  EXPECT_THAT(RowOf(*figures, "layer, backward, ms").values,
              ElementsAre(Optional(DoubleNear(2.128, 1e-9)), Optional(DoubleNear(2.512, 1e-9)),
                          Optional(DoubleNear(2.6, 1e-9))));
  EXPECT_THAT(RowOf(*figures, "layer, kept, MB").values,
              ElementsAre(Optional(DoubleNear(0.64, 1e-9)), Optional(DoubleNear(2.56, 1e-9)),
                          Optional(DoubleNear(3.0, 1e-9))));
  // The first token has no loss.
  EXPECT_THAT(RowOf(*figures, "head, forward, ms").values,
              ElementsAre(Optional(DoubleNear(0.126, 1e-9)), Optional(DoubleNear(0.51, 1e-9)),
                          Optional(DoubleNear(0.598, 1e-9))));
}

TEST(ProfileFiguresTest, SayWhatIsWrongWithTheProfile) {
  v1::ProfileFile file = SomeProfile();
  file.mutable_profile()->mutable_layers(0)->set_backward_ratio_none(-1);
  EXPECT_THAT(std::string(FiguresOf(file).status().message()), HasSubstr("backward_ratio_none"));
}

}  // namespace
}  // namespace penstock::cli
