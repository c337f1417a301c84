// A small profile in the form of the analytic reference profiles, whose figures can be checked by hand.
#pragma once

#include <string>

namespace penstock::core {

// GPT, hidden 10, vocabulary 100, 1e9 operations a second; a grid of 2 x 2 points, the last not profiled.
std::string AnalyticGptExample();

}  // namespace penstock::core
