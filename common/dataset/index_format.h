// The layout of a .idx file, as megatron/core/datasets/indexed_dataset.py of NVIDIA/Megatron-LM documents it.
// Little-endian.
//
//   offset  0   magic "MMIDIDX\0\0"             9 bytes
//           9   version, 1                      uint64
//          17   dtype code of the tokens        uint8
//          18   sequences, S                    uint64
//          26   document indices, D             uint64   (one more than there are documents)
//          34   lengths of sequences, tokens    int32[S]
//    34 + 4 S   offsets of sequences in .bin    int64[S]
//   34 + 12 S   first sequence of each document int64[D]   (the last is S)
//   behind it, of multimodal datasets alone: a mode of each sequence, int8[S]
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace penstock::index_format {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and read as it is");

inline constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
inline constexpr uint64_t kVersion = 1;
inline constexpr size_t kVersionOffset = 9;
inline constexpr size_t kDtypeOffset = 17;
inline constexpr size_t kSequencesOffset = 18;
inline constexpr size_t kDocumentsOffset = 26;
inline constexpr size_t kHeaderBytes = 34;

// Names of the documented codes, from 1.
inline constexpr const char* kTypeNames[] = {"uint8", "int8",    "int16",   "int32",
                                             "int64", "float64", "float32", "uint16"};

// Of them those that Penstock reads.
enum class TokenType : uint8_t { kInt32 = 4, kUint16 = 8 };

inline size_t BytesOf(TokenType type) { return type == TokenType::kUint16 ? 2 : 4; }

}  // namespace penstock::index_format
