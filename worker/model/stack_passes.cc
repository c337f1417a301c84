#include "worker/model/stack_passes.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "worker/model/joined_layer.h"

namespace penstock::worker {
namespace {

// What the layers have of a row that is cut between parts, between the passes of these.
using CarriedByLayers = std::vector<CarriedKeys>;

// A part's way up through the layers, in steps (block.h) that go on from layer to layer.
class StackForward {
 public:
  StackForward(const StackPart& stack, const LayerContext& context, const std::vector<Recompute>& levels,
               at::Tensor hidden, StackMemory& memory, CarriedByLayers& carried, PassBack back,
               const ParametersNeeded& needed)
      : stack_(stack),
        carried_(carried),
        context_(context),
        levels_(levels),
        hidden_(std::move(hidden)),
        memory_(memory),
        back_(back),
        needed_(needed) {
    memory_.resize(stack.layers.size());
  }

  bool Advance() {
    for (; next_ < stack_.layers.size(); ++next_) {
      if (!layer_.has_value()) {
        if (needed_) needed_(stack_.layer_ends[next_]);
        context_.carried = &carried_[next_];
        layer_.emplace(stack_.layers[next_], context_, std::move(hidden_), levels_[next_], memory_[next_]);
      }
      if (layer_->Advance()) return true;
      hidden_ = layer_->TakeOutput();
      layer_.reset();
      if (back_ == PassBack::kDoesNotCome) memory_[next_] = {};
    }
    return false;
  }

  at::Tensor Take() { return std::move(hidden_); }

 private:
  const StackPart& stack_;
  CarriedByLayers& carried_;
  // Of the layer that runs.
  LayerContext context_;
  const std::vector<Recompute>& levels_;
  at::Tensor hidden_;
  StackMemory& memory_;
  const PassBack back_;
  const ParametersNeeded& needed_;
  size_t next_ = 0;
  std::optional<LayerForwardSteps> layer_;
};

// What a layer kept, once.
using TakeLayer = std::function<LayerMemory(size_t layer)>;

// And down again.
class StackBackward {
 public:
  // `last`: all other parts are as far as this one, or further.
  StackBackward(const StackPart& stack, const LayerContext& context, TakeLayer take, bool last,
                at::Tensor gradient, at::Tensor& source_gradient, WeightProducts& products)
      : stack_(stack),
        context_(context),
        take_(std::move(take)),
        last_(last),
        gradient_(std::move(gradient)),
        source_gradient_(source_gradient),
        products_(products),
        next_(stack.layers.size()) {
    while (lowest_experts_ < stack.layers.size() && !HasExperts(lowest_experts_)) ++lowest_experts_;
  }

  bool Advance() {
    for (; next_ > 0; --next_) {
      const size_t layer = next_ - 1;
      if (!layer_.has_value()) {
        layer_.emplace(stack_.layers[layer], context_, take_(layer), std::move(gradient_), source_gradient_,
                       products_);
      }
      products_.BeginLayer(HasExperts(layer));
      if (layer_->Advance()) return true;
      gradient_ = layer_->TakeGradient();
      layer_.reset();
      if (layer == lowest_experts_) products_.EndExperts();
      if (last_) products_.EndLayer(stack_.layer_begins[layer]);
    }
    products_.EndPart();
    return false;
  }

  at::Tensor Take() { return std::move(gradient_); }

 private:
  bool HasExperts(size_t layer) const { return stack_.layers[layer].feed_forward.experts.has_value(); }

  const StackPart& stack_;
  const LayerContext& context_;
  const TakeLayer take_;
  const bool last_;
  at::Tensor gradient_;
  at::Tensor& source_gradient_;
  WeightProducts& products_;
  // Counts layers down, one further.
  size_t next_;
  size_t lowest_experts_ = 0;
  std::optional<LayerBackwardSteps> layer_;
};

// A step of each part, then the next of each: all have as many.
template <typename Pass>
at::Tensor RunInTurn(std::deque<Pass>& passes) {
  bool goes_on = true;
  while (goes_on) {
    for (Pass& pass : passes) goes_on = pass.Advance();
  }
  std::vector<at::Tensor> results;
  for (Pass& pass : passes) results.push_back(pass.Take());
  return JoinParts(results);
}

}  // namespace

PartRows RowsOf(const std::vector<LayerContext>& parts) {
  PartRows rows;
  for (const LayerContext& part : parts) rows.push_back(part.rows());
  return rows;
}

at::Tensor ForwardInTurn(const StackPart& stack, const std::vector<LayerContext>& parts,
                         const std::vector<Recompute>& levels, at::Tensor hidden,
                         std::vector<StackMemory>& memory, PassBack back, const ParametersNeeded& needed) {
  if (stack.layers.empty()) return hidden;
  memory.resize(parts.size());
  std::vector<at::Tensor> rows = OwnRowsOfParts(RowsOf(parts), std::move(hidden));
  // The first part is never behind another one.
  const ParametersNeeded there;
  CarriedByLayers carried(stack.layers.size());
  std::deque<StackForward> passes;
  for (size_t i = 0; i < parts.size(); ++i) {
    passes.emplace_back(stack, parts[i], levels, std::move(rows[i]), memory[i], carried, back,
                        i == 0 ? needed : there);
  }
  return RunInTurn(passes);
}

at::Tensor BackwardInTurn(const StackPart& stack, const std::vector<LayerContext>& parts,
                          std::vector<StackMemory> memory, at::Tensor gradient, at::Tensor& source_gradient,
                          WeightProducts& products) {
  if (stack.layers.empty()) return gradient;
  std::vector<at::Tensor> rows = OwnRowsOfParts(RowsOf(parts), std::move(gradient));
  std::deque<StackBackward> passes;
  for (size_t i = 0; i < parts.size(); ++i) {
    StackMemory& kept = memory[i];
    passes.emplace_back(
        stack, parts[i], [&kept](size_t layer) { return std::move(kept[layer]); },
        /*last=*/i + 1 == parts.size(), std::move(rows[i]), source_gradient, products);
  }
  return RunInTurn(passes);
}

at::Tensor BackwardAtOnce(const StackPart& stack, const std::vector<LayerContext>& parts,
                          const LayerContext& whole, std::vector<StackMemory> memory, at::Tensor gradient,
                          WeightProducts& products) {
  if (stack.layers.empty()) return gradient;
  const auto join = [&](size_t layer) {
    std::vector<LayerMemory> of_parts;
    for (StackMemory& part : memory) of_parts.push_back(std::move(part[layer]));
    return JoinLayer(stack.layers[layer], parts, whole, std::move(of_parts));
  };
  at::Tensor no_source;
  StackBackward pass(stack, whole, join, /*last=*/true, std::move(gradient), no_source, products);
  while (pass.Advance()) continue;
  return pass.Take();
}

}  // namespace penstock::worker
