// Keys and values of divided rows between the context ranks of a stage group: which rows go where, the
// exchange before attention, and the way back of their gradients.
//
//   ArrivingKeys others = StartKeys(group, exchange, key, value);
//   ... attention that needs none of them, then others.Get() ...
//   const std::unique_ptr<PendingRows> pending = StartKeyGradients(group, exchange, others_gradient);
//   ...
//   AddKeyGradients(exchange, *pending, key_gradient, value_gradient);
//
// All context ranks call these in the same order, also with nothing to send.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker/model/stage_group.h"
#include "worker/program/program.h"
#include "worker/program/share.h"

namespace penstock::worker {

// What a rank has of a row that is cut between parts (worker/program/parts.h) when a part begins that goes on
// with it: keys and values of its own chunks in earlier parts, and of those that came in them. In the order
// of CarriedRow::chunks: [tokens, key columns, then value columns]. Undefined: nothing.
using CarriedKeys = at::Tensor;

// Which these are. The row is the first one of the part.
struct CarriedRow {
  std::vector<RowChunk> chunks;

  int64_t tokens() const;
};

// What the next part finds, after this one which `found` that: of its last row, where that goes on. `shape`:
// of this part.
CarriedRow CarriedOn(const MicroBatch& shape, const GroupPlace& place, const CarriedRow& found);

// Rows of the flat target activations. The tensors are int64.
struct KeyExchange {
  // How many rows go to, and come from, each context rank.
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
  // The own rows of divided rows of the micro-batch, ascending. Which of them are sent: to context rank 0,
  // then 1,
  // ...; and the same as rows of the flat activation.
  at::Tensor divided_rows;
  at::Tensor sent_places;
  at::Tensor sent_rows;
  // Of a part, where rows are sent of what it found: these, their places among all that are sent, and those
  // of `sent_rows`. Else undefined.
  at::Tensor carried_rows;
  at::Tensor carried_places;
  at::Tensor own_places;
  // The received rows in the order of ChunksReceived. Undefined where they come so.
  at::Tensor order;

  int64_t received_rows() const;
};

// A chunk that this rank receives.
struct ReceivedChunk {
  RowChunk chunk;
  // Its first row as they come from context rank 0, then 1, ...
  int64_t arrival = 0;
};

// By row; of a row, by the rank that it comes from.
std::vector<ReceivedChunk> ChunksReceived(const MicroBatch& shape, const GroupPlace& place);

// The tensors are staged for the device (to_device.h). Throws what LibTorch throws.
KeyExchange MakeKeyExchange(const MicroBatch& shape, const GroupPlace& place, at::Device device,
                            const CarriedRow& carried = {});

// What a part found, and then of other ranks, in the order of ChunksReceived: [rows, key columns, then value
// columns].
struct ReceivedKeys {
  at::Tensor rows;

  at::Tensor key() const { return rows.narrow(1, 0, rows.size(1) / 2); }
  at::Tensor value() const { return rows.narrow(1, rows.size(1) / 2, rows.size(1) / 2); }
};

// Keys and values that are on their way, or there already.
class ArrivingKeys {
 public:
  // Nothing.
  ArrivingKeys() = default;
  // `order`: KeyExchange::order.
  ArrivingKeys(std::unique_ptr<PendingRows> rows, at::Tensor order, CarriedKeys carried = {})
      : pending_(std::move(rows)), order_(std::move(order)), carried_(std::move(carried)) {}

  // Waits for them the first time.
  const ReceivedKeys& Get();

  bool is_nothing() const { return pending_ == nullptr && !keys_.rows.defined(); }

 private:
  std::unique_ptr<PendingRows> pending_;
  at::Tensor order_;
  CarriedKeys carried_;
  ReceivedKeys keys_;
};

// `key` and `value`: [own tokens, columns], of one type; rows may be strided. `carried`: what the part found.
// The group outlives the result.
ArrivingKeys StartKeys(StageGroup& group, const KeyExchange& exchange, const at::Tensor& key,
                       const at::Tensor& value, CarriedKeys carried = {});

// Of a part whose last row goes on in the next one, what that finds: from here on all that this part found
// and received, and then so many of the last own tokens.
struct KeptForNextPart {
  int64_t others_begin = 0;
  int64_t own = 0;
};
CarriedKeys Keep(const KeptForNextPart& kept, const ReceivedKeys& others, const at::Tensor& key,
                 const at::Tensor& value);

// `others`: gradients of the keys that came; they must not change until what is returned has been waited for.
// The group outlives it.
std::unique_ptr<PendingRows> StartKeyGradients(StageGroup& group, const KeyExchange& exchange,
                                               const ReceivedKeys& others);

// Adds what the other ranks have for the own rows to `key` and `value`, summed in the order of the ranks and
// in AccumulationType before.
void AddKeyGradients(const KeyExchange& exchange, PendingRows& pending, const at::Tensor& key,
                     const at::Tensor& value);

}  // namespace penstock::worker
