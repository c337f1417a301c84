#include "tests/unit/verify/token_owners.h"

namespace penstock::core {
namespace {

// For each place of the row whether the loss counts what comes after it.
std::vector<bool> LossPlaces(const v1::Batch& batch, const v1::MicroBatch& micro_batch, uint32_t begin,
                             uint32_t end, uint32_t length) {
  std::vector<bool> counts(length, false);
  uint32_t start = 0;
  for (uint32_t i = begin; i < end; ++i) {
    const v1::Sample& sample = batch.samples(micro_batch.samples(i));
    for (uint32_t t = 0; t < sample.target_tokens(); ++t) {
      const uint32_t place = sample.input_tokens() + t;
      if (place > 0) counts[start + place - 1] = true;
    }
    start += sample.input_tokens() + sample.target_tokens();
  }
  return counts;
}

// For each token of a row the number in the span of the rank that has it, and the number of its chunk.
struct Place {
  uint32_t rank = 0;
  uint32_t chunk = 0;
};
std::vector<Place> PlacesOf(uint32_t length, uint32_t ranks) {
  std::vector<Place> places(length);
  const uint32_t chunks = ranks == 1 ? 1 : 2 * ranks;
  for (uint32_t chunk = 0; chunk < chunks; ++chunk)
    for (uint32_t token = chunk * length / chunks; token < (chunk + 1) * length / chunks; ++token)
      places[token] = {chunk < ranks ? chunk : chunks - 1 - chunk, chunk};
  return places;
}

void AddRow(const std::vector<bool>& loss, uint32_t first, uint32_t ranks, std::vector<OwnedTokens>* owners) {
  const std::vector<Place> places = PlacesOf(static_cast<uint32_t>(loss.size()), ranks);
  for (size_t token = 0; token < places.size(); ++token) {
    const Place& place = places[token];
    OwnedTokens& owner = (*owners)[first + place.rank];
    ++owner.target;
    owner.loss += loss[token] ? 1 : 0;
    for (uint32_t other = 0; other < ranks; ++other) {
      // Its last chunk's queries see what lies before.
      if (other == place.rank || place.chunk > 2 * ranks - 1 - other) continue;
      ++owner.sent;
      ++(*owners)[first + other].received;
    }
  }
}

OwnedTokens Whole(const v1::MicroBatch& m, bool is_t5) {
  OwnedTokens whole;
  whole.loss = m.loss_tokens();
  if (m.layout() == v1::LAYOUT_PACKED) {
    whole.source = is_t5 ? *m.source_cu_seqlens().rbegin() : 0;
    whole.target = *m.target_cu_seqlens().rbegin();
  } else {
    whole.source = m.rows() * m.source_length();
    whole.target = m.rows() * m.target_length();
  }
  return whole;
}

}  // namespace

std::vector<OwnedTokens> OwnersOf(const v1::Batch& batch, const v1::MicroBatch& micro_batch, bool is_t5,
                                  uint32_t contexts) {
  if (contexts == 1) return {Whole(micro_batch, is_t5)};
  std::vector<OwnedTokens> owners(contexts);
  for (int row = 0; row < micro_batch.span_first_size(); ++row) {
    uint32_t begin = row, end = row + 1;
    if (micro_batch.layout() == v1::LAYOUT_CONCATENATED) {
      begin = micro_batch.row_samples(row);
      end = micro_batch.row_samples(row + 1);
    }
    uint32_t length = micro_batch.target_length();
    if (micro_batch.layout() == v1::LAYOUT_PACKED)
      length = micro_batch.target_cu_seqlens(row + 1) - micro_batch.target_cu_seqlens(row);
    AddRow(LossPlaces(batch, micro_batch, begin, end, length), micro_batch.span_first(row),
           micro_batch.span_ranks(row), &owners);
  }
  return owners;
}

}  // namespace penstock::core
