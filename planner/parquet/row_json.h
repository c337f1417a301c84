// Rows of Arrow's tables as lines of JSON.
//
//   std::string text;
//   AppendRow(*batch, row, &text);      // {"input_ids":[5,7],"labels":[-100,7]}
//
// Numbers, booleans, text, lists, structs and dictionaries of them. A column of another type (bytes of an
// image, times, decimals) is left out, and so is what is null: `penstock dataset import` ignores fields that
// it does not know, and a table's rows have all columns.
#pragma once

#include <arrow/array.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

// Whether values of the type can be written.
bool IsJsonType(const arrow::DataType& type);

// Writes value `index` of the array, of a type that IsJsonType allows. False: it is null, nothing is written.
bool AppendJson(const arrow::Array& array, int64_t index, std::string* text);

// Writes a row as an object.
void AppendRow(const arrow::RecordBatch& batch, int64_t row, std::string* text);

}  // namespace penstock
