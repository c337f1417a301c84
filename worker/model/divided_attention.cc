#include "worker/model/divided_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace penstock::worker {
namespace {

// Some received rows, [rows, key-value heads * width], as [1, key-value heads, rows, width]; a view.
at::Tensor ReceivedHeads(const AttentionOptions& options, const at::Tensor& flat, int64_t begin,
                         int64_t length) {
  const int64_t heads = options.key_value_heads;
  return flat.narrow(0, begin, length).view({1, length, heads, flat.size(1) / heads}).transpose(1, 2);
}

// Some queries of a piece, and some of the keys that it or another rank has.
struct Rectangle {
  int64_t query_begin = 0;
  int64_t query_length = 0;
  bool received = false;
  int64_t key_begin = 0;
  int64_t key_length = 0;
  // Of the first query behind the first key, in the row.
  int64_t lead = 0;

  at::Tensor Queries(const at::Tensor& piece) const { return piece.narrow(2, query_begin, query_length); }
  KernelResult Queries(const KernelResult& piece) const {
    return {Queries(piece.output), Queries(piece.log_sums), piece.whole};
  }
  at::Tensor Keys(const AttentionOptions& options, const at::Tensor& own, const at::Tensor& others) const {
    return received ? ReceivedHeads(options, others, key_begin, key_length)
                    : own.narrow(2, key_begin, key_length);
  }
  AttentionOperands Operands(const AttentionOptions& options, const AttentionOperands& piece,
                             ArrivingKeys& others) const {
    return Operands(options, piece, received ? others.Get() : ReceivedKeys());
  }
  AttentionOperands Operands(const AttentionOptions& options, const AttentionOperands& piece,
                             const ReceivedKeys& others) const {
    const at::Tensor rows = received ? others.key() : at::Tensor();
    const at::Tensor values = received ? others.value() : at::Tensor();
    return {Queries(piece.query), Keys(options, piece.key, rows), Keys(options, piece.value, values)};
  }
};

AttentionOptions Unmasked(AttentionOptions options) {
  options.causal = false;
  return options;
}

// The part of two runs of a row in which every query sees a key and every key is seen; empty: no query.
Rectangle Visible(const RowRun& queries, const RowRun& keys, int64_t window) {
  const int64_t lead = queries.position - keys.position;
  const int64_t query_begin = std::max<int64_t>(0, -lead);
  const int64_t query_end = std::min(queries.length, keys.length + window - 1 - lead);
  if (query_begin >= query_end) return {};
  const int64_t key_begin = std::max<int64_t>(0, query_begin + lead - window + 1);
  const int64_t key_end = std::min(keys.length, query_end + lead);
  return {.query_begin = queries.begin + query_begin,
          .query_length = query_end - query_begin,
          .received = keys.received,
          .key_begin = keys.begin + key_begin,
          .key_length = key_end - key_begin,
          .lead = lead + query_begin - key_begin};
}

// Those of a windowed layer.
template <typename Run>
void ForEachVisible(const DividedRow& row, int64_t window, const Run& run) {
  for (const RowRun& queries : row.queries) {
    for (const RowRun& keys : row.keys) {
      const Rectangle rectangle = Visible(queries, keys, window);
      if (rectangle.query_length > 0) run(rectangle);
    }
  }
}

// What queries of a piece see of others in a layer without windows: all of it.
template <typename Run>
void ForEachOther(const AttentionShape& shape, size_t index, const Run& run) {
  for (const OtherKeys& keys : shape.others) {
    if (keys.piece != index) continue;
    run(Rectangle{.query_begin = keys.query_begin - shape.pieces[index].query_begin,
                  .query_length = keys.query_length,
                  .received = true,
                  .key_begin = keys.key_begin,
                  .key_length = keys.key_length,
                  .lead = 0});
  }
}

const DividedRow* WindowedRow(const AttentionOptions& options, const AttentionShape& shape, size_t index) {
  if (options.window == 0) return nullptr;
  for (const DividedRow& row : shape.divided_rows) {
    if (row.piece == index) return &row;
  }
  return nullptr;
}

// Over no keys at all.
KernelResult NothingSeen(const AttentionOperands& piece) {
  const at::Tensor output = at::zeros_like(piece.query);
  const at::ScalarType wide = piece.query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {output, at::full({piece.query.size(0), piece.query.size(1), piece.query.size(2)},
                           -std::numeric_limits<double>::infinity(), piece.query.options().dtype(wide))};
}

}  // namespace

KernelResult DividedForward(const AttentionOptions& options, const AttentionShape& shape, size_t index,
                            const AttentionOperands& piece, ArrivingKeys& received) {
  if (const DividedRow* const row = WindowedRow(options, shape, index); row != nullptr) {
    KernelResult result = NothingSeen(piece);
    ForEachVisible(*row, options.window, [&](const Rectangle& rectangle) {
      Merge(KernelForward(options, RowBegins(), rectangle.Operands(options, piece, received), rectangle.lead),
            rectangle.Queries(result));
    });
    return result;
  }
  KernelResult result = KernelForward(options, shape.rows, piece);
  ForEachOther(shape, index, [&](const Rectangle& rectangle) {
    Merge(KernelForward(Unmasked(options), RowBegins(), rectangle.Operands(options, piece, received)),
          rectangle.Queries(result));
  });
  return result;
}

void ReceivedBackward(const AttentionOptions& options, const AttentionShape& shape, size_t index,
                      const AttentionOperands& piece, ArrivingKeys& received, const KernelResult& merged,
                      const at::Tensor& gradient, const AttentionOperands& gradients,
                      const ReceivedKeys& others) {
  for (const at::Tensor& tensor : {gradients.query, gradients.key, gradients.value}) tensor.zero_();
  const auto add = [&](const AttentionOptions& rules, const Rectangle& rectangle) {
    KernelBackward(rules, RowBegins(), rectangle.Operands(options, piece, received),
                   rectangle.Queries(merged), rectangle.Queries(gradient), Write::kAdd,
                   rectangle.Operands(options, gradients, others), rectangle.lead);
  };
  if (const DividedRow* const row = WindowedRow(options, shape, index); row != nullptr) {
    ForEachVisible(*row, options.window, [&](const Rectangle& rectangle) {
      if (rectangle.received) add(options, rectangle);
    });
    return;
  }
  ForEachOther(shape, index, [&](const Rectangle& rectangle) { add(Unmasked(options), rectangle); });
}

void OwnBackward(const AttentionOptions& options, const AttentionShape& shape, size_t index,
                 const AttentionOperands& piece, const KernelResult& merged, const at::Tensor& gradient,
                 const AttentionOperands& gradients) {
  if (const DividedRow* const row = WindowedRow(options, shape, index); row != nullptr) {
    ForEachVisible(*row, options.window, [&](const Rectangle& rectangle) {
      if (rectangle.received) return;
      KernelBackward(options, RowBegins(), rectangle.Operands(options, piece, ReceivedKeys()),
                     rectangle.Queries(merged), rectangle.Queries(gradient), Write::kAdd,
                     rectangle.Operands(options, gradients, ReceivedKeys()), rectangle.lead);
    });
    return;
  }
  const bool divided = shape.pieces[index].divided;
  KernelResult own = merged;
  own.whole = !divided;
  KernelBackward(options, shape.rows, piece, own, gradient, divided ? Write::kAdd : Write::kOverwrite,
                 gradients);
}

}  // namespace penstock::worker
