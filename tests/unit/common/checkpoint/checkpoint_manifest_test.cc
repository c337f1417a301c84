#include "common/checkpoint/checkpoint_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock {
namespace {

const CheckpointManifest kManifest = {.job_id = "job",
                                      .next_iteration = 40,
                                      .ranks = 2,
                                      .pipeline = 2,
                                      .data = 1,
                                      .parts = {{.bytes = 7, .crc32 = 0xffffffff}, {.bytes = 0, .crc32 = 0}}};

TEST(CheckpointManifest, IsReadAsItWasPrinted) {
  const auto read = ParseManifest(PrintManifest(kManifest));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->job_id, "job");
  EXPECT_EQ(read->next_iteration, 40u);
  EXPECT_EQ(read->pipeline, 2u);
  EXPECT_EQ(read->data, 1u);
  EXPECT_EQ(read->parts, kManifest.parts);
}

TEST(CheckpointManifest, RecordsAreReadAsTheyWerePrinted) {
  const auto read = ParseRecord(PrintRecord({.part = kManifest.parts[0], .of = kManifest}));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->part, kManifest.parts[0]);
  EXPECT_EQ(read->of.next_iteration, 40u);
  EXPECT_EQ(read->of.ranks, 2u);
}

TEST(CheckpointManifest, ThatOfTheFirstFormatHasNoParts) {
  const auto read = ParseManifest(R"({"format": 1, "job": "j", "next_iteration": 4, "ranks": 3})");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ranks, 3u);
  EXPECT_TRUE(read->parts.empty());
}

TEST(CheckpointManifest, WhatMakesNoSenseIsRefused) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"ranks": "4"})", R"({"ranks": 0, "next_iteration": 2})", R"({"ranks": -4})",
        R"({"ranks": 4294967300, "next_iteration": 2})", R"({"ranks": 4})",
        R"({"format": 2, "ranks": 1, "next_iteration": 2})",
        R"({"format": 2, "ranks": 2, "next_iteration": 2, "parts": [{"bytes": 1, "crc32": 2}]})",
        R"({"format": 2, "ranks": 1, "next_iteration": 2, "parts": [7]})",
        R"({"format": 2, "ranks": 1, "next_iteration": 2, "parts": [{"bytes": 1, "crc32": 4294967296}]})"}) {
    EXPECT_EQ(ParseManifest(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(ParseRecord(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace penstock
