// Large numbers for people.
#pragma once

#include <string>

namespace penstock::cli {

// "1,234,567": rounded to a whole number.
std::string WithThousands(double value);

}  // namespace penstock::cli
