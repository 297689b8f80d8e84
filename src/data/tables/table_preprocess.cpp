#include "data/tables/table_preprocess.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/names.h"
#include "readers/csv.h"

namespace xformer::data {
namespace {

constexpr double kNoise = 1e-3;
constexpr double kEdge = 1e-7;               // values this close to the ends belong to them
constexpr double kClip = 5.199337582605575;  // the quantile of kEdge less one rounding step: where scikit-learn clips

double polynomial(const std::array<double, 8>& coefficients, double x) {
  double sum = 0;
  for (size_t i = coefficients.size(); i-- > 0;) sum = sum * x + coefficients[i];
  return sum;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double population_std(const std::vector<double>& values, double mean) {
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// The level of a value between the quantiles: the mean of an interpolation that climbs from below and of one that
// descends from above, which differ where quantiles repeat.
double level_of(const std::vector<double>& quantiles, double value) {
  const size_t last = quantiles.size() - 1;
  if (value - kEdge < quantiles[0]) return 0;
  if (value + kEdge > quantiles[last]) return 1;
  const auto step = 1 / static_cast<double>(last);
  // Strictly inside, so that neighbours on both sides exist.
  const auto above =
      static_cast<size_t>(std::upper_bound(quantiles.begin(), quantiles.end(), value) - quantiles.begin());
  const auto least =
      static_cast<size_t>(std::lower_bound(quantiles.begin(), quantiles.end(), value) - quantiles.begin());
  if (least == above) {  // between two quantiles
    const double part = (value - quantiles[above - 1]) / (quantiles[above] - quantiles[above - 1]);
    return (static_cast<double>(above - 1) + part) * step;
  }
  return (static_cast<double>(above - 1) + static_cast<double>(least)) / 2 * step;
}

size_t code_of(const std::vector<std::string>& sorted, const std::string& category) {
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), category);
  return found != sorted.end() && *found == category ? static_cast<size_t>(found - sorted.begin()) : sorted.size();
}

}  // namespace

Normalisation parse_normalisation(const std::string& name) {
  const std::vector<std::string> names{"none", "standard", "quantile"};
  const auto found = std::find(names.begin(), names.end(), canonical_name(name));
  XF_CHECK(found != names.end(), UserError, "{}", unknown_name_message("normalisation", name, names));
  return static_cast<Normalisation>(found - names.begin());
}

double inverse_normal_cdf(double p) {
  static constexpr std::array<double, 8> a{3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                           1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                           3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static constexpr std::array<double, 8> b{1.0,
                                           4.2313330701600911252e+1,
                                           6.8718700749205790830e+2,
                                           5.3941960214247511077e+3,
                                           2.1213794301586595867e+4,
                                           3.9307895800092710610e+4,
                                           2.8729085735721942674e+4,
                                           5.2264952788528545610e+3};
  static constexpr std::array<double, 8> c{
      1.42343711074968357734e0, 4.63033784615654529590e0,  5.76949722146069140550e0,  3.64784832476320460504e0,
      1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr std::array<double, 8> d{1.0,
                                           2.05319162663775882187e0,
                                           1.67638483018380384940e0,
                                           6.89767334985100004550e-1,
                                           1.48103976427480074590e-1,
                                           1.51986665636164571966e-2,
                                           5.47593808499534494600e-4,
                                           1.05075007164441684324e-9};
  static constexpr std::array<double, 8> e{
      6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,  2.96560571828504891230e-1,
      2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr std::array<double, 8> f{1.0,
                                           5.99832206555887937690e-1,
                                           1.36929880922735805310e-1,
                                           1.48753612908506148525e-2,
                                           7.86869131145613259100e-4,
                                           1.84631831751005468180e-5,
                                           1.42151175831644588870e-7,
                                           2.04426310338993978564e-15};
  XF_ASSERT(p >= 0 && p <= 1, "{} is a probability", p);
  if (p == 0 || p == 1) return (p - 0.5) * std::numeric_limits<double>::infinity();
  const double centred = p - 0.5;
  if (std::abs(centred) <= 0.425) {
    const double r = 0.180625 - centred * centred;
    return centred * polynomial(a, r) / polynomial(b, r);
  }
  const double r = std::sqrt(-std::log(std::min(p, 1 - p)));
  const double size =
      r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5) / polynomial(f, r - 5);
  return std::copysign(size, centred);
}

double NumericMap::operator()(double value) const {
  if (std::isnan(value)) value = mean;
  if (quantiles.empty()) return (value - shift) * scale;
  return std::clamp(inverse_normal_cdf(level_of(quantiles, value)), -kClip, kClip);
}

std::vector<double> quantiles_of(std::vector<double> values, int64_t count) {
  std::sort(values.begin(), values.end());
  std::vector<double> quantiles;
  for (int64_t i = 0; i < count; ++i) {
    const double place =
        count == 1 ? 0
                   : static_cast<double>(values.size() - 1) * static_cast<double>(i) / static_cast<double>(count - 1);
    const auto below = static_cast<size_t>(place);
    const double low = values[below], high = values[std::min(below + 1, values.size() - 1)];
    quantiles.push_back(std::lerp(low, high, place - static_cast<double>(below)));
  }
  return quantiles;
}

NumericMap fit_numeric(std::vector<double> train, Normalisation normalisation, Stream noise) {
  constexpr int64_t kRowsPerQuantile = 30, kMostQuantiles = 1000, kFewestQuantiles = 10;
  const auto rows = static_cast<int64_t>(train.size());
  NumericMap map;
  std::vector<double> present;
  std::copy_if(train.begin(), train.end(), std::back_inserter(present),
               [](double value) { return !std::isnan(value); });
  XF_ASSERT(!present.empty(), "a column to be fitted has a value");
  map.mean = mean_of(present);
  if (normalisation == Normalisation::kNone) return map;
  for (double& value : train)
    if (std::isnan(value)) value = map.mean;
  const auto [least, most] = std::minmax_element(train.begin(), train.end());
  const bool constant = *least == *most;  // whose mean, summed up, may be off by a rounding
  const double mean = constant ? *least : mean_of(train), deviation = constant ? 0 : population_std(train, mean);
  if (normalisation == Normalisation::kStandard) {
    map.shift = mean;
    map.scale = deviation > 0 ? 1 / deviation : 0;
    return map;
  }
  const double noise_std = kNoise / std::max(deviation, kNoise);
  for (double& value : train)  // a level strictly between 0 and 1, half a step away from both
    value += noise_std * inverse_normal_cdf(static_cast<double>(noise.next_u64() >> 12) * 0x1p-52 + 0x1p-53);
  const int64_t count = std::clamp(rows / kRowsPerQuantile, kFewestQuantiles, kMostQuantiles);
  map.quantiles = quantiles_of(std::move(train), std::min(count, rows));
  return map;
}

TableMaps fit_table(const Table& table, Normalisation normalisation, uint64_t seed) {
  const TablePart& train = table.part(Split::kTrain);
  const size_t numeric = table.numeric_names.size(), categorical = table.categorical_names.size();
  const auto rows = static_cast<size_t>(train.rows);
  TableMaps maps;
  // Some columns at a time, so that a file larger than memory is read in few passes.
  constexpr size_t kColumnsAtOnce = 64;
  for (size_t first = 0; first < numeric; first += kColumnsAtOnce) {
    std::vector<std::vector<double>> columns(std::min(kColumnsAtOnce, numeric - first), std::vector<double>(rows));
    for (size_t row = 0; row < rows; ++row)
      for (size_t i = 0; i < columns.size(); ++i) columns[i][row] = train.number(row * numeric + first + i);
    for (size_t i = 0; i < columns.size(); ++i)
      maps.numeric.push_back(
          fit_numeric(std::move(columns[i]), normalisation, Stream(derive_seed(seed, "table/noise"), first + i)));
  }
  for (size_t column = 0; column < categorical; ++column) {
    std::set<std::string> distinct;
    for (size_t row = 0; row < rows; ++row) distinct.insert(train.categories[row * categorical + column]);
    maps.categories.emplace_back(distinct.begin(), distinct.end());
  }
  if (table.kind == TableKind::kRegression) {
    maps.target_mean = mean_of(train.targets);
    maps.target_std = population_std(train.targets, maps.target_mean);
    return maps;
  }
  const std::set<std::string> distinct(train.labels.begin(), train.labels.end());
  maps.classes.assign(distinct.begin(), distinct.end());
  if (std::all_of(distinct.begin(), distinct.end(),
                  [](const auto& label) { return readers::parse_number(label).has_value(); }))
    std::stable_sort(maps.classes.begin(), maps.classes.end(), [](const auto& left, const auto& right) {
      return *readers::parse_number(left) < *readers::parse_number(right);
    });
  return maps;
}

void encode_row(const TableMaps& maps, const TablePart& part, int64_t row, std::span<float> values) {
  const size_t numeric = maps.numeric.size(), categorical = maps.categories.size(), at = static_cast<size_t>(row);
  XF_ASSERT(values.size() == numeric + categorical, "{} places for {} columns", values.size(), numeric + categorical);
  for (size_t i = 0; i < numeric; ++i) values[i] = static_cast<float>(maps.numeric[i](part.number(at * numeric + i)));
  for (size_t i = 0; i < categorical; ++i)
    values[numeric + i] = static_cast<float>(code_of(maps.categories[i], part.categories[at * categorical + i]));
}

int64_t class_id(const TableMaps& maps, const std::string& label) {
  const auto found = std::find(maps.classes.begin(), maps.classes.end(), label);
  XF_ASSERT(found != maps.classes.end(), "'{}' is a class of train", label);  // check_table
  return found - maps.classes.begin();
}

double standard_target(const TableMaps& maps, double target) { return (target - maps.target_mean) / maps.target_std; }

std::vector<int64_t> count_unseen(const TableMaps& maps, const TablePart& part) {
  const size_t columns = maps.categories.size();
  std::vector<int64_t> counts(columns);
  for (size_t i = 0; i < part.categories.size(); ++i) {
    const auto& known = maps.categories[i % columns];
    if (code_of(known, part.categories[i]) == known.size()) ++counts[i % columns];
  }
  return counts;
}

std::vector<int64_t> category_sizes(const TableMaps& maps, const Table& table) {
  const auto dev = count_unseen(maps, table.part(Split::kDev)), test = count_unseen(maps, table.part(Split::kTest));
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < maps.categories.size(); ++i)
    sizes.push_back(static_cast<int64_t>(maps.categories[i].size()) + (dev[i] + test[i] > 0 ? 1 : 0));
  return sizes;
}

}  // namespace xformer::data
