// A small set of test cases in which every two things that can go together do go together.
//
// A case takes one value of each factor. Faults mostly need a certain value of one factor or of two (Kuhn,
// Wallace and Gallo 2004, "Software fault interactions and implications for software testing"), so a set that
// covers all pairs finds nearly what the product finds.
//
//   // Three factors of 2, 3 and 4 values; the first two exclude each other in one pair.
//   CoveringSet({2, 3, 4}, [](const Case& c) { return c[0] != 1 || c[1] != 2; }, /*seed=*/1);
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace penstock::testing {

// The index of a value for each factor.
using Case = std::vector<size_t>;
using IsPossible = std::function<bool(const Case&)>;

// All possible cases, in lexical order. `values`: how many each factor has.
std::vector<Case> Product(const std::vector<size_t>& values, const IsPossible& possible);

// The same in an order that the seed alone decides, so that a part of it is a sample of the whole.
std::vector<Case> ShuffledProduct(const std::vector<size_t>& values, const IsPossible& possible,
                                  uint64_t seed);

// The product of some factors: of each combination of their values that occurs in a possible case the first
// of ShuffledProduct that has it, so that the other factors are drawn. In that order.
std::vector<Case> ProductOf(const std::vector<size_t>& factors, const std::vector<size_t>& values,
                            const IsPossible& possible, uint64_t seed);

// Possible cases such that each combination of values of `ways` factors (2: each pair) that occurs in a
// possible case occurs in one of these. Always the one that covers most combinations not yet covered is taken
// next (Cohen et al. 1997, "The AETG system"), among equals the first of ShuffledProduct. For products of up
// to a million cases.
std::vector<Case> CoveringSet(const std::vector<size_t>& values, const IsPossible& possible, uint64_t seed,
                              size_t ways = 2);

}  // namespace penstock::testing
