#include "planner/parquet/row_json.h"

#include <arrow/util/float16.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

namespace penstock {
namespace {

template <typename Number>
void AppendNumber(Number value, std::string* text) {
  char digits[64];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value);
  text->append(digits, end);
}

// JSON has no NaN and no infinity: they stand as text, which is refused where a number is wanted.
void AppendFraction(double value, std::string* text) {
  if (std::isfinite(value))
    AppendNumber(value, text);
  else
    text->append(std::isnan(value) ? "\"NaN\"" : "\"Infinity\"");
}

// Bytes that are not UTF-8, which a column of text should not have, become U+FFFD.
void AppendText(std::string_view value, std::string* text) {
  const nlohmann::json json(std::string{value});
  text->append(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

template <typename Array>
void AppendList(const arrow::Array& array, int64_t index, std::string* text) {
  const auto& list = static_cast<const Array&>(array);
  const int64_t begin = list.value_offset(index);
  const int64_t end = begin + list.value_length(index);
  text->push_back('[');
  for (int64_t i = begin; i < end; ++i) {
    if (i > begin) text->push_back(',');
    if (!AppendJson(*list.values(), i, text)) text->append("null");
  }
  text->push_back(']');
}

void AppendStruct(const arrow::StructArray& array, int64_t index, std::string* text) {
  text->push_back('{');
  bool first = true;
  for (int i = 0; i < array.num_fields(); ++i) {
    const size_t before = text->size();
    if (!first) text->push_back(',');
    AppendText(array.struct_type()->field(i)->name(), text);
    text->push_back(':');
    if (IsJsonType(*array.field(i)->type()) && AppendJson(*array.field(i), index, text))
      first = false;
    else
      text->resize(before);
  }
  text->push_back('}');
}

template <typename Array>
auto ValueOf(const arrow::Array& array, int64_t index) {
  return static_cast<const Array&>(array).Value(index);
}

}  // namespace

bool IsJsonType(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::BOOL:
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64:
    case arrow::Type::HALF_FLOAT:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRUCT:
      return true;
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
      return IsJsonType(*type.field(0)->type());
    case arrow::Type::DICTIONARY:
      return IsJsonType(*static_cast<const arrow::DictionaryType&>(type).value_type());
    default:
      return false;
  }
}

bool AppendJson(const arrow::Array& array, int64_t index, std::string* text) {
  if (array.IsNull(index)) return false;
  switch (array.type_id()) {
    case arrow::Type::BOOL:
      text->append(ValueOf<arrow::BooleanArray>(array, index) ? "true" : "false");
      return true;
    case arrow::Type::INT8:
      AppendNumber(int32_t{ValueOf<arrow::Int8Array>(array, index)}, text);
      return true;
    case arrow::Type::INT16:
      AppendNumber(ValueOf<arrow::Int16Array>(array, index), text);
      return true;
    case arrow::Type::INT32:
      AppendNumber(ValueOf<arrow::Int32Array>(array, index), text);
      return true;
    case arrow::Type::INT64:
      AppendNumber(ValueOf<arrow::Int64Array>(array, index), text);
      return true;
    case arrow::Type::UINT8:
      AppendNumber(uint32_t{ValueOf<arrow::UInt8Array>(array, index)}, text);
      return true;
    case arrow::Type::UINT16:
      AppendNumber(ValueOf<arrow::UInt16Array>(array, index), text);
      return true;
    case arrow::Type::UINT32:
      AppendNumber(ValueOf<arrow::UInt32Array>(array, index), text);
      return true;
    case arrow::Type::UINT64:
      AppendNumber(ValueOf<arrow::UInt64Array>(array, index), text);
      return true;
    case arrow::Type::HALF_FLOAT:
      AppendFraction(arrow::util::Float16::FromBits(ValueOf<arrow::HalfFloatArray>(array, index)).ToDouble(),
                     text);
      return true;
    case arrow::Type::FLOAT:
      AppendFraction(double{ValueOf<arrow::FloatArray>(array, index)}, text);
      return true;
    case arrow::Type::DOUBLE:
      AppendFraction(ValueOf<arrow::DoubleArray>(array, index), text);
      return true;
    case arrow::Type::STRING:
      AppendText(static_cast<const arrow::StringArray&>(array).GetView(index), text);
      return true;
    case arrow::Type::LARGE_STRING:
      AppendText(static_cast<const arrow::LargeStringArray&>(array).GetView(index), text);
      return true;
    case arrow::Type::LIST:
      AppendList<arrow::ListArray>(array, index, text);
      return true;
    case arrow::Type::LARGE_LIST:
      AppendList<arrow::LargeListArray>(array, index, text);
      return true;
    case arrow::Type::FIXED_SIZE_LIST:
      AppendList<arrow::FixedSizeListArray>(array, index, text);
      return true;
    case arrow::Type::STRUCT:
      AppendStruct(static_cast<const arrow::StructArray&>(array), index, text);
      return true;
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return AppendJson(*dictionary.dictionary(), dictionary.GetValueIndex(index), text);
    }
    default:
      return false;
  }
}

void AppendRow(const arrow::RecordBatch& batch, int64_t row, std::string* text) {
  text->push_back('{');
  bool first = true;
  for (int i = 0; i < batch.num_columns(); ++i) {
    const size_t before = text->size();
    if (!first) text->push_back(',');
    AppendText(batch.column_name(i), text);
    text->push_back(':');
    if (AppendJson(*batch.column(i), row, text))
      first = false;
    else
      text->resize(before);
  }
  text->push_back('}');
}

}  // namespace penstock
