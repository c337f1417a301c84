#include "common/compact/deflate.h"

#include <zlib.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

// What is asked for first; then twice as much each time.
constexpr size_t kFirstBytes = 4096;

// zlib counts in 32 bits: what is longer goes in by parts.
constexpr size_t kMostAtOnce = size_t{1} << 30;

class Inflater {
 public:
  Inflater() : ready_(inflateInit(&stream_) == Z_OK) {}
  ~Inflater() {
    if (ready_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  absl::StatusOr<std::string> Run(absl::string_view deflated, size_t most_bytes) {
    if (!ready_) return absl::ResourceExhaustedError("zlib has no memory");
    std::string bytes;
    int state = Z_OK;
    while (state == Z_OK) {
      if (bytes.size() == made_ && !Grow(most_bytes, bytes))
        return absl::ResourceExhaustedError(absl::StrCat("more than ", most_bytes, " bytes come out"));
      state = Step(deflated, bytes);
    }
    if (state != Z_STREAM_END || taken_ != deflated.size())
      return absl::InvalidArgumentError("not what zlib has compressed");
    bytes.resize(made_);
    return bytes;
  }

 private:
  // False: there may be no more. One byte more than there may be tells what is too long from what just fits.
  bool Grow(size_t most_bytes, std::string& bytes) const {
    if (made_ > most_bytes) return false;
    bytes.resize(std::min(std::max(kFirstBytes, 2 * made_), most_bytes + 1));
    return true;
  }

  int Step(absl::string_view deflated, std::string& bytes) {
    const size_t in = std::min(deflated.size() - taken_, kMostAtOnce);
    const size_t out = std::min(bytes.size() - made_, kMostAtOnce);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(deflated.data() + taken_));
    stream_.avail_in = static_cast<uInt>(in);
    stream_.next_out = reinterpret_cast<Bytef*>(bytes.data() + made_);
    stream_.avail_out = static_cast<uInt>(out);
    const int state = inflate(&stream_, Z_NO_FLUSH);
    taken_ += in - stream_.avail_in;
    made_ += out - stream_.avail_out;
    return state;
  }

  z_stream stream_ = {};
  const bool ready_;
  size_t taken_ = 0;
  size_t made_ = 0;
};

}  // namespace

std::string Deflate(absl::string_view bytes) {
  std::string deflated(compressBound(bytes.size()), '\0');
  uLongf size = deflated.size();
  compress2(reinterpret_cast<Bytef*>(deflated.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
            bytes.size(), Z_DEFAULT_COMPRESSION);
  deflated.resize(size);
  deflated.shrink_to_fit();
  return deflated;
}

absl::StatusOr<std::string> Inflate(absl::string_view deflated, size_t most_bytes) {
  absl::StatusOr<std::string> bytes = Inflater().Run(deflated, most_bytes);
  if (bytes.ok() && bytes->size() > most_bytes)
    return absl::ResourceExhaustedError(absl::StrCat("more than ", most_bytes, " bytes come out"));
  return bytes;
}

}  // namespace penstock
