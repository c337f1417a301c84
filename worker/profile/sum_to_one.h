// Least squares of rows whose terms should add up to 1: terms of a form of times over the time that was
// measured, so that small and large micro-batches count the same.
//
//   const SumToOne sums(TermsOf(points), weights);
//   const std::optional<std::vector<double>> solution = sums.Solve(0b011);
#pragma once

#include <optional>
#include <vector>

#include "common/least_squares/least_squares.h"

namespace penstock::worker {

class SumToOne {
 public:
  // At most 31 columns. `weights`: how much each row counts.
  SumToOne(std::vector<std::vector<double>> rows, std::vector<double> weights);

  // A row that should add up to 0 and is no measurement: what is known of the coefficients beforehand.
  void AddPrior(const std::vector<double>& row, double weight);

  // Over the columns in `mask`, 0 for all others; nothing when they are (nearly) dependent or a coefficient
  // is negative.
  std::optional<std::vector<double>> Solve(unsigned mask) const;

  // Weighted sum of squares, priors included.
  double SquaredError(const std::vector<double>& solution) const;
  // Of each row how far its sum is from 1.
  std::vector<double> Errors(const std::vector<double>& solution) const;
  // Of each row how far off it is by a fit to all others, over the columns in `mask` (Allen, "The
  // relationship between variable selection and data augmentation", Technometrics 1974). Empty where they are
  // dependent.
  std::vector<double> LeftOutErrors(unsigned mask) const;

  int columns() const { return static_cast<int>(equations_.right.size()); }

 private:
  struct Prior {
    std::vector<double> row;
    double weight = 0;
  };
  // Scaled to a unit diagonal.
  struct Subset {
    std::vector<int> columns;
    std::vector<double> matrix;
  };
  // Of a column, summed up over the rows.
  double Square(int column) const { return equations_.matrix[column * columns() + column]; }
  // Nothing where a column is 0 everywhere.
  std::optional<Subset> SubsetOf(unsigned mask) const;

  std::vector<std::vector<double>> rows_;
  std::vector<double> weights_;
  NormalEquations equations_;
  std::vector<Prior> priors_;
};

}  // namespace penstock::worker
