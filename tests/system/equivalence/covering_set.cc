#include "tests/system/equivalence/covering_set.h"

#include <algorithm>
#include <random>
#include <utility>

namespace penstock::testing {
namespace {

// Numbers each combination of values of `ways` factors.
class CombinationNumbers {
 public:
  CombinationNumbers(const std::vector<size_t>& values, size_t ways) : ways_(ways) {
    for (const size_t count : values) {
      first_.push_back(total_);
      total_ += count;
    }
  }

  size_t size() const {
    size_t size = 1;
    for (size_t i = 0; i < ways_; ++i) size *= total_;
    return size;
  }

  std::vector<size_t> Of(const Case& choice) const {
    std::vector<size_t> numbers;
    Add(choice, 0, ways_, 0, numbers);
    return numbers;
  }

 private:
  // Those of `left` more factors, from `factor` on, that go with what `number` stands for.
  void Add(const Case& choice, size_t factor, size_t left, size_t number,
           std::vector<size_t>& numbers) const {
    if (left == 0) {
      numbers.push_back(number);
      return;
    }
    for (; factor + left <= choice.size(); ++factor) {
      Add(choice, factor + 1, left - 1, number * total_ + first_[factor] + choice[factor], numbers);
    }
  }

  const size_t ways_;
  std::vector<size_t> first_;
  size_t total_ = 0;
};

}  // namespace

std::vector<Case> Product(const std::vector<size_t>& values, const IsPossible& possible) {
  std::vector<Case> cases;
  Case choice(values.size(), 0);
  for (;;) {
    if (possible(choice)) cases.push_back(choice);
    size_t factor = values.size();
    while (factor > 0 && ++choice[factor - 1] == values[factor - 1]) choice[--factor] = 0;
    if (factor == 0) return cases;
  }
}

std::vector<Case> ShuffledProduct(const std::vector<size_t>& values, const IsPossible& possible,
                                  uint64_t seed) {
  std::vector<Case> cases = Product(values, possible);
  std::mt19937_64 random(seed);
  // Not std::shuffle, whose order is the library's business.
  for (size_t i = cases.size(); i > 1; --i) std::swap(cases[i - 1], cases[random() % i]);
  return cases;
}

std::vector<Case> CoveringSet(const std::vector<size_t>& values, const IsPossible& possible, uint64_t seed,
                              size_t ways) {
  const std::vector<Case> cases = ShuffledProduct(values, possible, seed);
  const CombinationNumbers numbers(values, ways);
  // Combinations of impossible cases alone count as covered.
  std::vector<char> open(numbers.size(), 0);
  for (const Case& choice : cases) {
    for (const size_t combination : numbers.Of(choice)) open[combination] = 1;
  }
  std::vector<Case> chosen;
  for (;;) {
    const Case* best = nullptr;
    int64_t most = 0;
    for (const Case& choice : cases) {
      const std::vector<size_t> own = numbers.Of(choice);
      const auto gain =
          std::ranges::count_if(own, [&](size_t combination) { return open[combination] != 0; });
      if (gain > most) {
        most = gain;
        best = &choice;
      }
    }
    if (best == nullptr) return chosen;
    chosen.push_back(*best);
    for (const size_t combination : numbers.Of(*best)) open[combination] = 0;
  }
}

}  // namespace penstock::testing
