#include "tests/unit/worker/profile/work_clock.h"

#include <ATen/core/TensorBody.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace penstock::worker {
namespace {

std::atomic<int64_t> work = 0;

using Inputs = c10::ArrayRef<const at::IValue>;

// [..., n, k] x [..., k, m] at `left` and the input after it.
int64_t OfProduct(Inputs inputs, size_t left) {
  return inputs[left].toTensor().numel() * inputs[left + 1].toTensor().size(-1);
}

// Two products, of a query [count, heads, queries, width] with the keys, and of the scores with the values.
int64_t OfAttention(Inputs inputs, size_t query) {
  return 2 * inputs[query].toTensor().numel() * inputs[query + 1].toTensor().size(2);
}

using Count = std::function<int64_t(Inputs)>;

const std::map<std::string, Count, std::less<>>& Products() {
  static const auto* const products = new std::map<std::string, Count, std::less<>>{
      {"aten::mm", [](Inputs inputs) { return OfProduct(inputs, 0); }},
      {"aten::bmm", [](Inputs inputs) { return OfProduct(inputs, 0); }},
      {"aten::addmm", [](Inputs inputs) { return OfProduct(inputs, 1); }},
      {"aten::addmm_", [](Inputs inputs) { return OfProduct(inputs, 1); }},
      {"aten::_scaled_dot_product_flash_attention_for_cpu",
       [](Inputs inputs) { return OfAttention(inputs, 0); }},
      // The scores again, and a product for the gradients of the scores and of each operand: five for two.
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       [](Inputs inputs) { return OfAttention(inputs, 1) / 2 * 5; }},
  };
  return *products;
}

// What calls operators that are counted by themselves.
bool OnlyCallsOthers(const std::string& name) { return name == "aten::linear" || name == "aten::matmul"; }

bool IsView(const at::RecordFunction& call) {
  const auto schema = call.operator_schema();
  if (!schema || schema->returns().empty()) return true;
  const auto* const alias = schema->returns().front().alias_info();
  return alias != nullptr && !alias->isWrite();
}

std::unique_ptr<at::ObserverContext> CountProduct(const at::RecordFunction& call) {
  if (const auto found = Products().find(call.name()); found != Products().end()) {
    work += found->second(call.inputs());
  }
  return nullptr;
}

void CountWritten(const at::RecordFunction& call, at::ObserverContext*) {
  const std::string name = call.name();
  if (Products().contains(name) || OnlyCallsOthers(name) || IsView(call)) return;
  for (const at::IValue& output : call.outputs()) {
    if (output.isTensor() && output.toTensor().defined()) work += output.toTensor().numel();
  }
}

}  // namespace

WorkClock::WorkClock()
    : handle_(at::addGlobalCallback(
          at::RecordFunctionCallback(CountProduct, CountWritten)
              .needsInputs(true)
              .needsOutputs(true)
              .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}))) {}

WorkClock::~WorkClock() { at::removeCallback(handle_); }

double WorkClock::Now() const { return static_cast<double>(work); }

}  // namespace penstock::worker
