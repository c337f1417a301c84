#include "tests/system/equivalence/covering_set.h"

#include <algorithm>
#include <random>
#include <utility>

namespace penstock::testing {
namespace {

// Numbers each pair of values of two factors.
class PairNumbers {
 public:
  explicit PairNumbers(const std::vector<size_t>& values) {
    for (const size_t count : values) {
      first_.push_back(total_);
      total_ += count;
    }
  }

  size_t size() const { return total_ * total_; }

  std::vector<size_t> Of(const Case& choice) const {
    std::vector<size_t> pairs;
    for (size_t a = 0; a < choice.size(); ++a) {
      for (size_t b = a + 1; b < choice.size(); ++b) {
        pairs.push_back((first_[a] + choice[a]) * total_ + first_[b] + choice[b]);
      }
    }
    return pairs;
  }

 private:
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

std::vector<Case> CoveringSet(const std::vector<size_t>& values, const IsPossible& possible, uint64_t seed) {
  const std::vector<Case> cases = ShuffledProduct(values, possible, seed);
  const PairNumbers numbers(values);
  // Pairs of impossible cases count as covered.
  std::vector<char> open(numbers.size(), 0);
  for (const Case& choice : cases) {
    for (const size_t pair : numbers.Of(choice)) open[pair] = 1;
  }
  std::vector<Case> chosen;
  for (;;) {
    const Case* best = nullptr;
    int64_t most = 0;
    for (const Case& choice : cases) {
      const std::vector<size_t> pairs = numbers.Of(choice);
      const auto gain = std::ranges::count_if(pairs, [&](size_t pair) { return open[pair] != 0; });
      if (gain > most) {
        most = gain;
        best = &choice;
      }
    }
    if (best == nullptr) return chosen;
    chosen.push_back(*best);
    for (const size_t pair : numbers.Of(*best)) open[pair] = 0;
  }
}

}  // namespace penstock::testing
