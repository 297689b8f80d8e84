// From a table's values to what a model reads, all of it fitted on train alone: numbers normalised, categories and
// classes as codes, a regression's target standardised.
//
// The rules are those of the FT-Transformer's authors (Gorishniy et al., NeurIPS 2021; scikit-learn's
// QuantileTransformer and StandardScaler).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/tables/table.h"

namespace xformer::data {

enum class Normalisation { kNone, kStandard, kQuantile };
[[nodiscard]] Normalisation parse_normalisation(const std::string& name);  // "none", "standard", "quantile"; UserError

// The quantile function of N(0, 1) (Wichura, Applied Statistics 37, 1988: AS 241, relative error about 1e-16); p of
// 0 and 1 gives the infinities.
[[nodiscard]] double inverse_normal_cdf(double p);

// What becomes of one column of numbers.
struct NumericMap {
  double mean = 0;                // stands in for a missing value
  double shift = 0, scale = 1;    // (x - shift) * scale, without quantiles
  std::vector<double> quantiles;  // ascending, at the levels i / (count - 1)

  [[nodiscard]] double operator()(double value) const;
};

// `count` quantiles of the values at evenly spaced levels from 0 to 1, by linear interpolation.
[[nodiscard]] std::vector<double> quantiles_of(std::vector<double> values, int64_t count);

// Standard: mean and population standard deviation; a constant column gives 0. Quantile: to N(0, 1) by
// max(min(rows / 30, 1000), 10) quantiles of the values with a little noise, drawn for the fit only.
[[nodiscard]] NumericMap fit_numeric(std::vector<double> train, Normalisation normalisation, Stream noise);

struct TableMaps {
  std::vector<NumericMap> numeric;
  std::vector<std::vector<std::string>> categories;  // of train, sorted; a category's code is its place
  std::vector<std::string> classes;                  // sorted, numbers by value; a class's id is its place
  double target_mean = 0, target_std = 1;            // of train (population); an RMSE is multiplied by target_std
};

[[nodiscard]] TableMaps fit_table(const Table& table, Normalisation normalisation, uint64_t seed);

// One row: its numbers, then its codes (of a category that train lacks: the number of those it has).
void encode_row(const TableMaps& maps, const TablePart& part, int64_t row, std::span<float> values);
[[nodiscard]] int64_t class_id(const TableMaps& maps, const std::string& label);
[[nodiscard]] double standard_target(const TableMaps& maps, double target);

// By categorical column: in how many rows the category is none of train's.
[[nodiscard]] std::vector<int64_t> count_unseen(const TableMaps& maps, const TablePart& part);
// By categorical column: how many codes occur, with that of unseen ones where dev or test has any.
[[nodiscard]] std::vector<int64_t> category_sizes(const TableMaps& maps, const Table& table);

}  // namespace xformer::data
