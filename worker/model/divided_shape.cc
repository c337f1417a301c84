#include "worker/model/divided_shape.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "worker/program/share.h"

namespace penstock::worker {
namespace {

// What the chunks of divided rows see on other ranks, and of earlier parts, piece by piece.
std::vector<OtherKeys> OtherKeysOf(const MicroBatch& shape, const GroupPlace& place,
                                   const std::vector<AttentionPiece>& pieces, const CarriedRow& carried) {
  const std::vector<ReceivedChunk> received = ChunksReceived(shape, place);
  std::vector<OtherKeys> others;
  int64_t query_begin = 0;
  int64_t key_begin = carried.tokens();
  size_t next = 0;
  for (const RowChunk& chunk : ChunksOf(shape, Side::kTarget, place.context)) {
    for (; next < received.size() && received[next].chunk.row < chunk.row; ++next) {
      key_begin += received[next].chunk.length;
    }
    OtherKeys keys = {.query_begin = query_begin, .query_length = chunk.length, .key_begin = key_begin};
    if (chunk.row == 0) {
      // What the part found comes before all that it receives.
      keys.key_begin = 0;
      keys.key_length = carried.tokens();
    }
    while (keys.piece + 1 < pieces.size() && pieces[keys.piece + 1].query_begin <= query_begin) ++keys.piece;
    // Those that the first chunk of a row sees come before the others of the row.
    for (size_t i = next; i < received.size() && received[i].chunk.row == chunk.row; ++i) {
      if (received[i].chunk.first < chunk.first) keys.key_length += received[i].chunk.length;
    }
    if (keys.key_length > 0) others.push_back(keys);
    query_begin += chunk.length;
  }
  return others;
}

// The runs of the pieces that are parts of divided rows. Their chunks lie end to end in a piece.
std::vector<DividedRow> RunsOfDividedRows(const MicroBatch& shape, const GroupPlace& place,
                                          const std::vector<AttentionPiece>& pieces,
                                          const CarriedRow& carried) {
  std::vector<DividedRow> rows;
  const std::vector<RowChunk> chunks = ChunksOf(shape, Side::kTarget, place.context);
  size_t next = 0;
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    if (!pieces[piece].divided) continue;
    while (shape.spans[chunks[next].row].ranks == 1) ++next;
    DividedRow row = {.piece = piece, .queries = {}, .keys = {}};
    const size_t number = chunks[next].row;
    for (int64_t begin = 0; next < chunks.size() && chunks[next].row == number; ++next) {
      row.queries.push_back({.begin = begin, .length = chunks[next].length, .position = chunks[next].first});
      begin += chunks[next].length;
    }
    row.keys = row.queries;
    int64_t begin = 0;
    const auto add = [&](const RowChunk& chunk) {
      if (chunk.row == number)
        row.keys.push_back(
            {.begin = begin, .length = chunk.length, .position = chunk.first, .received = true});
      begin += chunk.length;
    };
    for (const RowChunk& chunk : carried.chunks) add(chunk);
    for (const ReceivedChunk& received : ChunksReceived(shape, place)) add(received.chunk);
    rows.push_back(std::move(row));
  }
  return rows;
}

// Of a part that ends inside of a row. Of what it finds and receives the last row's comes last.
std::optional<KeptForNextPart> KeptOf(const MicroBatch& shape, const GroupPlace& place,
                                      const CarriedRow& carried) {
  const CarriedRow next = CarriedOn(shape, place, carried);
  if (next.chunks.empty()) return {};
  const size_t last = RowLengths(shape, Side::kTarget).size() - 1;
  KeptForNextPart kept;
  for (const RowChunk& chunk : ChunksOf(shape, Side::kTarget, place.context))
    if (chunk.row == last) kept.own += chunk.length;
  int64_t others = carried.tokens();
  for (const ReceivedChunk& received : ChunksReceived(shape, place)) others += received.chunk.length;
  kept.others_begin = others - (next.tokens() - kept.own);
  return kept;
}

}  // namespace

void DivideShape(const MicroBatch& shape, const ModelConfig& config, const GroupPlace& place,
                 at::Device device, const CarriedRow& carried, AttentionShape& target) {
  target.exchange = MakeKeyExchange(shape, place, device, carried);
  target.kept = KeptOf(shape, place, carried);
  target.others = OtherKeysOf(shape, place, target.pieces, carried);
  if (config.attention_window > 0)
    target.divided_rows = RunsOfDividedRows(shape, place, target.pieces, carried);
}

}  // namespace penstock::worker
