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
KeyExchange MakeKeyExchange(const MicroBatch& shape, const GroupPlace& place, at::Device device);

// Of other ranks, in the order of ChunksReceived: [received rows, key columns, then value columns].
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
  ArrivingKeys(std::unique_ptr<PendingRows> rows, at::Tensor order)
      : pending_(std::move(rows)), order_(std::move(order)) {}

  // Waits for them the first time.
  const ReceivedKeys& Get();

  bool is_nothing() const { return pending_ == nullptr && !keys_.rows.defined(); }

 private:
  std::unique_ptr<PendingRows> pending_;
  at::Tensor order_;
  ReceivedKeys keys_;
};

// `key` and `value`: [own tokens, columns], of one type; rows may be strided. The group outlives the result.
ArrivingKeys StartKeys(StageGroup& group, const KeyExchange& exchange, const at::Tensor& key,
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
