// Rule 7: the shapes of micro-batches hold their samples, and all token counts add up.
#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// Source and target tokens of a sample as the model sees them.
struct Lengths {
  uint64_t source = 0;
  uint64_t target = 0;
};

struct Totals {
  uint64_t real = 0;
  uint64_t computed = 0;
  uint64_t loss = 0;
};

// Positions of a sample that the loss counts: every target token that has a token before it. T5's decoder
// begins with a token of its own, so that all have.
uint64_t LossTokens(const v1::Sample& sample, bool encoder_decoder) {
  if (encoder_decoder || sample.input_tokens() > 0 || sample.target_tokens() == 0)
    return sample.target_tokens();
  return sample.target_tokens() - 1;
}

class MicroBatchCheck {
 public:
  MicroBatchCheck(const PlanIndex& index, int replica, int number, Report& report)
      : micro_batch_(index.plan().replicas(replica).micro_batches(number)),
        encoder_decoder_(index.plan().model().architecture() == v1::ARCHITECTURE_T5),
        name_(absl::StrCat("replica ", replica, ", micro-batch ", number)),
        report_(report) {
    for (uint32_t sample : micro_batch_.samples()) {
      if (sample >= static_cast<uint32_t>(index.batch().samples_size())) continue;  // rule 1 reports it
      Add(index.batch().samples(static_cast<int>(sample)));
    }
  }

  void Check() {
    switch (micro_batch_.layout()) {
      case v1::LAYOUT_PADDED:
        CheckPadded();
        break;
      case v1::LAYOUT_PACKED:
        CheckPacked();
        break;
      case v1::LAYOUT_CONCATENATED:
        CheckConcatenated();
        break;
      default:
        Fail(absl::StrCat("its layout is ", static_cast<int>(micro_batch_.layout())));
    }
    Expect("real_tokens", micro_batch_.real_tokens(), real_);
    Expect("loss_tokens", micro_batch_.loss_tokens(), loss_);
  }

 private:
  void Add(const v1::Sample& sample) {
    const uint64_t sum = uint64_t{sample.input_tokens()} + sample.target_tokens();
    lengths_.push_back(encoder_decoder_ ? Lengths{sample.input_tokens(), sample.target_tokens()}
                                        : Lengths{0, sum});
    real_ += sum;
    loss_ += LossTokens(sample, encoder_decoder_);
  }

  void Fail(const std::string& message) { report_.Add(kTokens, absl::StrCat(name_, ": ", message)); }

  void Expect(const char* field, uint64_t value, uint64_t expected) {
    if (value != expected) Fail(absl::StrCat(field, " is ", value, ", its samples have ", expected));
  }

  // Computed tokens of `rows` rows; products of two 32-bit numbers cannot overflow.
  uint64_t Rectangle() const {
    return uint64_t{micro_batch_.rows()} * micro_batch_.source_length() +
           uint64_t{micro_batch_.rows()} * micro_batch_.target_length();
  }

  // What other layouts have is not set.
  void ExpectEmpty(const char* field, bool empty) {
    if (!empty) Fail(absl::StrCat(field, " is set, which its layout does not have"));
  }

  void ExpectNoCuSeqlens() {
    ExpectEmpty("source_cu_seqlens", micro_batch_.source_cu_seqlens().empty());
    ExpectEmpty("target_cu_seqlens", micro_batch_.target_cu_seqlens().empty());
    if (!encoder_decoder_ && micro_batch_.source_length() > 0)
      Fail(absl::StrCat("source_length is ", micro_batch_.source_length(), ", a GPT has no source"));
  }

  void CheckPadded() {
    ExpectNoCuSeqlens();
    ExpectEmpty("row_samples", micro_batch_.row_samples().empty());
    Expect("rows", micro_batch_.rows(), lengths_.size());
    for (size_t i = 0; i < lengths_.size(); ++i) {
      if (lengths_[i].source > micro_batch_.source_length() ||
          lengths_[i].target > micro_batch_.target_length())
        Fail(absl::StrCat("its rows of ", micro_batch_.source_length(), " and ", micro_batch_.target_length(),
                          " tokens cut sample ", micro_batch_.samples(static_cast<int>(i)), " of ",
                          lengths_[i].source, " and ", lengths_[i].target));
    }
    Expect("computed_tokens", micro_batch_.computed_tokens(), Rectangle());
  }

  void CheckPacked() {
    ExpectEmpty("rows", micro_batch_.rows() == 0);
    ExpectEmpty("source_length", micro_batch_.source_length() == 0);
    ExpectEmpty("target_length", micro_batch_.target_length() == 0);
    ExpectEmpty("row_samples", micro_batch_.row_samples().empty());
    if (!encoder_decoder_) ExpectEmpty("source_cu_seqlens", micro_batch_.source_cu_seqlens().empty());
    uint64_t computed =
        CheckCuSeqlens("target_cu_seqlens", micro_batch_.target_cu_seqlens(), &Lengths::target);
    if (encoder_decoder_)
      computed += CheckCuSeqlens("source_cu_seqlens", micro_batch_.source_cu_seqlens(), &Lengths::source);
    Expect("computed_tokens", micro_batch_.computed_tokens(), computed);
  }

  // Returns the tokens of all samples.
  uint64_t CheckCuSeqlens(const char* field, const google::protobuf::RepeatedField<uint32_t>& cu_seqlens,
                          uint64_t Lengths::*length) {
    uint64_t sum = 0;
    bool right = cu_seqlens.size() == static_cast<int>(lengths_.size()) + 1 && cu_seqlens[0] == 0;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      sum += lengths_[i].*length;
      right = right && cu_seqlens[static_cast<int>(i) + 1] == sum;
    }
    if (!right) Fail(absl::StrCat(field, " are not 0 and the cumulative lengths of its samples"));
    return sum;
  }

  void CheckConcatenated() {
    ExpectNoCuSeqlens();
    CheckRows();
    Expect("computed_tokens", micro_batch_.computed_tokens(), Rectangle());
  }

  // Every row holds at least one sample, and holds its samples whole.
  void CheckRows() {
    const auto& ends = micro_batch_.row_samples();
    const auto samples = static_cast<uint32_t>(lengths_.size());
    if (ends.size() != static_cast<int64_t>(micro_batch_.rows()) + 1 || ends[0] != 0 ||
        ends[ends.size() - 1] != samples || !std::is_sorted(ends.begin(), ends.end())) {
      return Fail(absl::StrCat("row_samples are not 0 and the cumulative numbers of samples of its ",
                               micro_batch_.rows(), " rows"));
    }
    for (int row = 0; row + 1 < ends.size(); ++row) CheckRow(row, ends[row], ends[row + 1]);
  }

  void CheckRow(int row, uint32_t begin, uint32_t end) {
    if (begin == end) return Fail(absl::StrCat("row ", row, " has no sample"));
    Lengths sum;
    for (uint32_t sample = begin; sample < end; ++sample) {
      sum.source += lengths_[sample].source;
      sum.target += lengths_[sample].target;
    }
    if (sum.source > micro_batch_.source_length() || sum.target > micro_batch_.target_length())
      Fail(absl::StrCat("row ", row, " has ", sum.source, " and ", sum.target, " tokens, its lengths are ",
                        micro_batch_.source_length(), " and ", micro_batch_.target_length()));
  }

  const v1::MicroBatch& micro_batch_;
  const bool encoder_decoder_;
  const std::string name_;
  Report& report_;
  std::vector<Lengths> lengths_;
  uint64_t real_ = 0;
  uint64_t loss_ = 0;
};

// Rule 7: what the loss is divided by, added in the order of the batch's samples.
void CheckLossWeight(const PlanIndex& index, Report& report) {
  const bool encoder_decoder = index.plan().model().architecture() == v1::ARCHITECTURE_T5;
  double sum = 0;
  bool weighted = false;
  for (int i = 0; i < index.batch().samples_size(); ++i) {
    const v1::Sample& sample = index.batch().samples(i);
    weighted = weighted || sample.has_loss_weight();
    if (!std::isfinite(sample.loss_weight()) || sample.loss_weight() < 0) {
      report.Add(kTokens, absl::StrCat("batch.samples[", i, "].loss_weight is ", sample.loss_weight(),
                                       ", expected a number of at least 0"));
    }
    sum += sample.has_loss_weight() ? sample.loss_weight()
                                    : static_cast<double>(LossTokens(sample, encoder_decoder));
  }
  const double expected = weighted ? sum : 0;
  if (index.plan().loss_weight() == expected) return;
  report.Add(kTokens, absl::StrCat("the plan's loss_weight is ", index.plan().loss_weight(),
                                   ", its samples weigh ", expected));
}

void ExpectTotal(const char* field, uint64_t value, uint64_t expected, Report& report) {
  if (value != expected)
    report.Add(kTokens,
               absl::StrCat("the plan's ", field, " is ", value, ", its micro-batches have ", expected));
}

}  // namespace

void CheckTokens(const PlanIndex& index, Report& report) {
  Totals totals;
  for (int replica = 0; replica < index.replicas(); ++replica) {
    for (int m = 0; m < index.MicroBatches(replica); ++m) {
      MicroBatchCheck(index, replica, m, report).Check();
      const v1::MicroBatch& micro_batch = index.plan().replicas(replica).micro_batches(m);
      totals.real += micro_batch.real_tokens();
      totals.computed += micro_batch.computed_tokens();
      totals.loss += micro_batch.loss_tokens();
    }
  }
  ExpectTotal("real_tokens", index.plan().real_tokens(), totals.real, report);
  ExpectTotal("computed_tokens", index.plan().computed_tokens(), totals.computed, report);
  CheckLossWeight(index, report);
  ExpectTotal("loss_tokens", index.plan().loss_tokens(), totals.loss, report);
}

}  // namespace penstock::core::verify
