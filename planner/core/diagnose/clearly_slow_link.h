// When a link is called slow: by `penstock diagnose`, and by costs that are fitted to what was measured. Both
// say the same of a link.
#pragma once

namespace penstock::core {

// So many times what the median link of its kind takes for as many bytes. More than what makes a rank slow: a
// transfer is short, and shares wires and cores with others.
inline constexpr double kClearlySlowLink = 1.5;
// The same where nobody says what was foreseen: transfers are as long as their micro-batch, and links between
// hosts slower than those inside of one.
inline constexpr double kClearlySlowLinkOfGuesses = 5;

}  // namespace penstock::core
