#include "tests/integration/streams/meta_operators.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <set>
#include <string>
#include <vector>

namespace penstock::worker {
namespace {

// Their result, or its size, depends on values.
const std::set<std::string>& Readers() {
  static const auto& readers = *new std::set<std::string>{
      "aten::_local_scalar_dense", "aten::equal",    "aten::nonzero",           "aten::nonzero_static",
      "aten::masked_select",       "aten::_unique",  "aten::_unique2",          "aten::unique_dim",
      "aten::unique_consecutive",  "aten::bincount", "aten::repeat_interleave", "aten::is_nonzero"};
  return readers;
}

bool IsMeta(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_meta();
}

at::Tensor Zeros(const at::Tensor& meta) { return at::zeros(meta.sizes(), meta.options().device(at::kCPU)); }

c10::IValue OnCpu(const c10::IValue& value) {
  if (IsMeta(value)) return Zeros(value.toTensor());
  if (value.isDevice()) return at::Device(at::kCPU);
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector())
      tensors.push_back(tensor.is_meta() ? Zeros(tensor) : tensor);
    return tensors;
  }
  if (!value.isList()) return value;
  c10::List<c10::IValue> list = value.toList().copy();
  for (size_t i = 0; i < list.size(); ++i) list.set(i, OnCpu(list.get(i)));
  return list;
}

// The argument that a result is another name of; null: it is new.
const at::Tensor* AliasOf(const c10::FunctionSchema& schema, const c10::Argument& result,
                          const std::vector<c10::IValue>& arguments) {
  if (result.alias_info() == nullptr || !result.alias_info()->isWrite()) return nullptr;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && *alias == *result.alias_info()) return &arguments[i].toTensor();
  }
  return nullptr;
}

// On zeros of the same shapes; the results lose their values again.
void RunOnZeros(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<c10::IValue> arguments(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
  torch::jit::drop(*stack, count);
  for (const c10::IValue& argument : arguments) stack->push_back(OnCpu(argument));
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  const size_t first = stack->size() - schema.returns().size();
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    c10::IValue& result = (*stack)[first + i];
    if (!result.isTensor() || !result.toTensor().defined()) continue;
    const at::Tensor tensor = result.toTensor();
    if (const at::Tensor* alias = AliasOf(schema, schema.returns()[i], arguments)) {
      if (alias->sizes() != tensor.sizes()) alias->resize_(tensor.sizes());
      result = *alias;
    } else {
      result = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
    }
  }
}

}  // namespace

void CompleteMetaOperators() {
  static const auto& library = *[] {
    auto* const made =
        new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const std::optional<c10::OperatorHandle> op = dispatcher.findOp(name);
      if (!op.has_value() || name.name.rfind("aten::", 0) != 0 || Readers().contains(name.name)) continue;
      if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
          op->hasKernelForDispatchKey(c10::DispatchKey::Meta)) {
        continue;
      }
      made->impl(toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&RunOnZeros>());
    }
    return made;
  }();
  (void)library;
}

}  // namespace penstock::worker
