// Whether a sanitizer looks on, under which everything takes many times as long.
#pragma once

namespace penstock {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// How many random cases are tried: without a sanitizer `count`; with one a share of them, as it looks for
// wrong memory and not for wrong plans.
constexpr int Cases(int count) { return kSanitized ? count / 5 : count; }

}  // namespace penstock
