#include "tests/bench/strategies/hydraulis/assignment.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace penstock::hydraulis {
namespace {

constexpr int kTries = 50;
constexpr int kMoreMicroBatches = 20;
constexpr int kImprovements = 1000;

// A replica to which samples are given.
struct Load {
  double work_ns = 0;
  double longest_ns = 0;

  void Add(double ns) {
    work_ns += ns;
    longest_ns = std::max(longest_ns, ns);
  }
  double EndNs(const Scheme& scheme) const { return work_ns + (scheme.pipeline - 1) * longest_ns; }
};

double EndOf(absl::Span<const Scheme* const> replicas, absl::Span<const Load> loads) {
  double end = 0;
  for (size_t replica = 0; replica < replicas.size(); ++replica)
    end = std::max(end, loads[replica].EndNs(*replicas[replica]));
  return end;
}

// Each sample in turn to where it ends first: so the last end grows least, too.
std::vector<int> GiveOut(absl::Span<const Scheme* const> replicas, absl::Span<const int64_t> lengths,
                         absl::Span<const uint32_t> order) {
  std::vector<Load> loads(replicas.size());
  std::vector<int> replica_of_sample(lengths.size(), -1);
  for (const uint32_t sample : order) {
    double least = std::numeric_limits<double>::infinity();
    for (size_t replica = 0; replica < replicas.size(); ++replica) {
      const Scheme& scheme = *replicas[replica];
      if (lengths[sample] > scheme.most_tokens) continue;
      Load load = loads[replica];
      load.Add(scheme.WorkNs(lengths[sample]));
      if (load.EndNs(scheme) >= least) continue;
      least = load.EndNs(scheme);
      replica_of_sample[sample] = static_cast<int>(replica);
    }
    const int replica = replica_of_sample[sample];
    if (replica < 0) return {};
    loads[replica].Add(replicas[replica]->WorkNs(lengths[sample]));
  }
  return replica_of_sample;
}

// The most that a replica takes which is not the largest: longer samples have no choice, and go first.
int64_t RoomOfOthers(absl::Span<const Scheme* const> replicas) {
  int64_t most = 0, second = 0;
  for (const Scheme* scheme : replicas) {
    if (scheme->most_tokens > most) {
      second = std::exchange(most, scheme->most_tokens);
    } else if (scheme->most_tokens > second && scheme->most_tokens < most) {
      second = scheme->most_tokens;
    }
  }
  return second;
}

std::vector<uint32_t> LongestFirst(absl::Span<const int64_t> lengths, std::vector<uint32_t> samples) {
  std::ranges::stable_sort(samples, [&](uint32_t a, uint32_t b) { return lengths[a] > lengths[b]; });
  return samples;
}

// A micro-batch that is filled.
struct Bin {
  std::vector<uint32_t> samples;
  int64_t tokens = 0;
  double ns = 0;
};

class Packer {
 public:
  Packer(const Scheme& scheme, absl::Span<const int64_t> lengths, int count)
      : scheme_(scheme), lengths_(lengths), bins_(count) {}

  // Longest first, each into the shortest that has room.
  bool Fill(absl::Span<const uint32_t> samples) {
    for (const uint32_t sample : LongestFirst(lengths_, {samples.begin(), samples.end()})) {
      Bin* shortest = nullptr;
      for (Bin& bin : bins_) {
        if (bin.tokens + lengths_[sample] > scheme_.most_tokens) continue;
        if (shortest == nullptr || bin.ns < shortest->ns) shortest = &bin;
      }
      if (shortest == nullptr) return false;
      Put(sample, shortest);
    }
    return true;
  }

  // Moves or exchanges samples of the longest, as long as that makes it shorter.
  void Improve() {
    for (int i = 0; i < kImprovements; ++i) {
      Bin& longest = *std::ranges::max_element(bins_, {}, &Bin::ns);
      const bool better = std::ranges::any_of(bins_, [&](Bin& other) {
        return &other != &longest && (Move(&longest, &other) || Swap(&longest, &other));
      });
      if (!better) return;
    }
  }

  MicroBatches Take() {
    std::ranges::stable_sort(bins_, [](const Bin& a, const Bin& b) { return a.ns > b.ns; });
    MicroBatches micro_batches;
    for (Bin& bin : bins_)
      if (!bin.samples.empty()) micro_batches.push_back(std::move(bin.samples));
    return micro_batches;
  }

 private:
  void Put(uint32_t sample, Bin* bin) {
    bin->samples.push_back(sample);
    bin->tokens += lengths_[sample];
    bin->ns += scheme_.WorkNs(lengths_[sample]);
  }
  void Remove(size_t at, Bin* bin) {
    const uint32_t sample = bin->samples[at];
    bin->samples.erase(bin->samples.begin() + static_cast<ptrdiff_t>(at));
    bin->tokens -= lengths_[sample];
    bin->ns -= scheme_.WorkNs(lengths_[sample]);
  }

  // Whether the other one, with these tokens more, stays within its room and shorter than `longest` is.
  bool MayGive(const Bin& longest, const Bin& other, int64_t tokens, double ns) const {
    // A part in a million is no gain.
    return ns > 0 && other.tokens + tokens <= scheme_.most_tokens && other.ns + ns < longest.ns * (1 - 1e-6);
  }

  bool Move(Bin* longest, Bin* other) {
    for (size_t at = 0; at < longest->samples.size(); ++at) {
      const uint32_t sample = longest->samples[at];
      if (!MayGive(*longest, *other, lengths_[sample], scheme_.WorkNs(lengths_[sample]))) continue;
      Remove(at, longest);
      Put(sample, other);
      return true;
    }
    return false;
  }

  bool Swap(Bin* longest, Bin* other) {
    for (size_t mine = 0; mine < longest->samples.size(); ++mine) {
      for (size_t theirs = 0; theirs < other->samples.size(); ++theirs) {
        const uint32_t given = longest->samples[mine], taken = other->samples[theirs];
        const double ns = scheme_.WorkNs(lengths_[given]) - scheme_.WorkNs(lengths_[taken]);
        if (!MayGive(*longest, *other, lengths_[given] - lengths_[taken], ns)) continue;
        Remove(mine, longest);
        Remove(theirs, other);
        Put(given, other);
        Put(taken, longest);
        return true;
      }
    }
    return false;
  }

  const Scheme& scheme_;
  const absl::Span<const int64_t> lengths_;
  std::vector<Bin> bins_;
};

}  // namespace

double DispatchedNs(absl::Span<const Scheme* const> replicas, absl::Span<const int64_t> lengths,
                    absl::Span<const int> replica_of_sample) {
  std::vector<Load> loads(replicas.size());
  for (size_t sample = 0; sample < lengths.size(); ++sample) {
    const int replica = replica_of_sample[sample];
    loads[replica].Add(replicas[replica]->WorkNs(lengths[sample]));
  }
  return EndOf(replicas, loads);
}

std::vector<int> Dispatch(absl::Span<const Scheme* const> replicas, absl::Span<const int64_t> lengths) {
  std::vector<uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<int> best = GiveOut(replicas, lengths, LongestFirst(lengths, order));
  if (best.empty()) return best;
  double least = DispatchedNs(replicas, lengths, best);
  const int64_t room = RoomOfOthers(replicas);
  for (int seed = 0; seed < kTries; ++seed) {
    std::mt19937_64 engine(static_cast<uint64_t>(seed));
    std::shuffle(order.begin(), order.end(), engine);
    std::stable_partition(order.begin(), order.end(),
                          [&](uint32_t sample) { return lengths[sample] > room; });
    std::vector<int> tried = GiveOut(replicas, lengths, order);
    const double ns = DispatchedNs(replicas, lengths, tried);
    if (ns >= least) continue;
    least = ns;
    best = std::move(tried);
  }
  return best;
}

std::optional<MicroBatches> Pack(const Scheme& scheme, absl::Span<const int64_t> lengths,
                                 absl::Span<const uint32_t> samples, int count) {
  Packer packer(scheme, lengths, count);
  if (!packer.Fill(samples)) return std::nullopt;
  packer.Improve();
  return packer.Take();
}

std::optional<PackedReplica> PackReplica(const Scheme& scheme, absl::Span<const int64_t> lengths,
                                         absl::Span<const uint32_t> samples) {
  if (samples.empty()) return PackedReplica();
  int64_t tokens = 0;
  for (const uint32_t sample : samples) tokens += lengths[sample];
  const auto fewest = static_cast<int>((tokens + scheme.most_tokens - 1) / scheme.most_tokens);
  const int most = std::max(fewest, std::min(fewest + kMoreMicroBatches, static_cast<int>(samples.size())));
  std::optional<PackedReplica> best;
  for (int count = fewest; count <= most; ++count) {
    std::optional<MicroBatches> packed = Pack(scheme, lengths, samples, count);
    if (!packed.has_value()) continue;
    double longest = 0;
    for (const std::vector<uint32_t>& micro_batch : *packed) {
      double ns = scheme.once_ns;
      for (const uint32_t sample : micro_batch) ns += scheme.WorkNs(lengths[sample]);
      longest = std::max(longest, ns);
    }
    const double ns = longest * (scheme.pipeline - 1 + static_cast<double>(packed->size()));
    if (!best.has_value() || ns < best->ns) best = {*std::move(packed), ns};
  }
  return best;
}

std::optional<AssignedBatch> Assign(absl::Span<const Scheme> schemes, const Mix& mix,
                                    absl::Span<const int64_t> lengths) {
  std::vector<const Scheme*> replicas;
  for (const ReplicaGroup& group : mix)
    replicas.insert(replicas.end(), group.replicas, &schemes[group.scheme]);
  const std::vector<int> replica_of_sample = Dispatch(replicas, lengths);
  if (replica_of_sample.empty()) return std::nullopt;
  std::vector<std::vector<uint32_t>> samples(replicas.size());
  for (uint32_t sample = 0; sample < lengths.size(); ++sample)
    samples[replica_of_sample[sample]].push_back(sample);
  AssignedBatch assigned;
  for (size_t replica = 0; replica < replicas.size(); ++replica) {
    std::optional<PackedReplica> packed = PackReplica(*replicas[replica], lengths, samples[replica]);
    if (!packed.has_value()) return std::nullopt;
    assigned.ns = std::max(assigned.ns, packed->ns);
    assigned.replicas.push_back(*std::move(packed));
  }
  return assigned;
}

}  // namespace penstock::hydraulis
