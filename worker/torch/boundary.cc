#include "worker/torch/boundary.h"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"

namespace penstock::worker {
namespace {

// The first line: what follows is advice on debugging for Python users.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string Describe(absl::string_view what, const c10::Error& error) {
  return absl::StrCat(what, ": ", FirstLine(error.what_without_backtrace()));
}

}  // namespace

absl::Status RunTorch(absl::string_view what, const std::function<void()>& body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(Describe(what, error));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory"));
  } catch (const c10::DistError& error) {
    return absl::UnavailableError(Describe(what, error));
  } catch (const c10::Error& error) {
    return absl::InternalError(Describe(what, error));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(what, ": ", FirstLine(error.what())));
  }
}

}  // namespace penstock::worker
