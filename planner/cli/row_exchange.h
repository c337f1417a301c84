// What rows of tokens take on their way to experts on other ranks and back, for people.
#pragma once

#include <string>

#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

struct RowExchange {
  // Of all passes of a rank, in the mean over the ranks: in all, and what the rank waits.
  double ms = 0;
  double exposed_ms = 0;
  // Micro-batches that passes go through in parts.
  int in_parts = 0;
  // Of these, those whose backward passes are whole.
  int forward_alone = 0;
  // And of those, the ones whose parts begin inside of rows.
  int cut_rows = 0;
};

RowExchange RowExchangeOf(const v1::Plan& plan);

// "343.2 ms a rank, 10.6 ms of it waited for; 12 of 13 micro-batches in parts, 3 of them forward alone (1
// inside of samples)".
std::string RowExchangeText(const RowExchange& rows, int micro_batches);

}  // namespace penstock::cli
