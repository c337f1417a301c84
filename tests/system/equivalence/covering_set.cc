#include "tests/system/equivalence/covering_set.h"

#include <algorithm>
#include <queue>
#include <random>
#include <set>
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

  // Calls `take` with the number of each combination of the case.
  template <typename Take>
  void ForEach(const Case& choice, const Take& take) const {
    Visit(choice, 0, ways_, 0, take);
  }

 private:
  // Those of `left` more factors, from `factor` on, that go with what `number` stands for.
  template <typename Take>
  void Visit(const Case& choice, size_t factor, size_t left, size_t number, const Take& take) const {
    if (left == 0) return take(number);
    for (; factor + left <= choice.size(); ++factor) {
      Visit(choice, factor + 1, left - 1, number * total_ + first_[factor] + choice[factor], take);
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

std::vector<Case> ProductOf(const std::vector<size_t>& factors, const std::vector<size_t>& values,
                            const IsPossible& possible, uint64_t seed) {
  std::vector<Case> chosen;
  std::set<Case> seen;
  for (const Case& choice : ShuffledProduct(values, possible, seed)) {
    Case combination;
    for (const size_t factor : factors) combination.push_back(choice[factor]);
    if (seen.insert(combination).second) chosen.push_back(choice);
  }
  return chosen;
}

std::vector<Case> CoveringSet(const std::vector<size_t>& values, const IsPossible& possible, uint64_t seed,
                              size_t ways) {
  const std::vector<Case> cases = ShuffledProduct(values, possible, seed);
  const CombinationNumbers numbers(values, ways);
  // Combinations of impossible cases alone count as covered.
  std::vector<char> open(numbers.size(), 0);
  for (const Case& choice : cases)
    numbers.ForEach(choice, [&](size_t combination) { open[combination] = 1; });
  const auto gain = [&](const Case& choice) {
    int64_t count = 0;
    numbers.ForEach(choice, [&](size_t combination) { count += open[combination]; });
    return count;
  };
  // What a case adds never grows, so what it added when it was last looked at is a bound (Minoux 1978,
  // "Accelerated greedy algorithms for maximizing submodular set functions"). The first among equals is on
  // top.
  using Bound = std::pair<int64_t, size_t>;
  const auto later = [](const Bound& a, const Bound& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  };
  std::vector<Bound> bounds;
  for (size_t i = 0; i < cases.size(); ++i) bounds.emplace_back(numbers.size(), i);
  std::priority_queue<Bound, std::vector<Bound>, decltype(later)> open_cases(later, std::move(bounds));
  std::vector<Case> chosen;
  while (!open_cases.empty()) {
    const auto [bound, index] = open_cases.top();
    open_cases.pop();
    const int64_t now = gain(cases[index]);
    if (now < bound) {
      if (now > 0) open_cases.emplace(now, index);
      continue;
    }
    chosen.push_back(cases[index]);
    numbers.ForEach(cases[index], [&](size_t combination) { open[combination] = 0; });
  }
  return chosen;
}

}  // namespace penstock::testing
