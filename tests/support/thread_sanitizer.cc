// What thread sanitizer must not judge, in every test that is built with it.

// The reference count of absl::Status is changed in the packaged library, which is not instrumented: a status
// whose copies end on different threads looks like a race of its last owner. Races for the status itself are
// still seen: these are in its assignment or its copy, not in Unref. The second pattern is for code that is
// not optimised, where Unref is a function of its own and is named whole, the third for what the last owner
// frees with it, its payloads.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:^Unref$\nrace:Status::Unref\nrace:status_internal::Payload\n";
}
