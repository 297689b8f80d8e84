#include "reporting/smat.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"

namespace xformer::reporting {
namespace {

// From 0 at the least to 1 at the most; 0 where all are equal.
std::vector<double> spread_out(const std::vector<SmatInput>& models, double SmatInput::*value, SmatRounding rounding) {
  const auto less = [value](const SmatInput& one, const SmatInput& other) { return one.*value < other.*value; };
  const auto [least, most] = std::minmax_element(models.begin(), models.end(), less);
  const double low = (*least).*value, width = (*most).*value - low;
  std::vector<double> result;
  for (const SmatInput& model : models) {
    const double share = width > 0 ? (model.*value - low) / width : 0;
    result.push_back(rounding == SmatRounding::kTerms ? std::round(100 * share) / 100 : share);
  }
  return result;
}

}  // namespace

std::vector<SmatScore> smat_scores(const std::vector<SmatInput>& models, SmatRounding rounding, bool higher_is_better) {
  XF_CHECK(models.size() >= 2, UserError, "SMAT compares models: expected two or more, got {}", models.size());
  std::set<std::string> names;
  for (const SmatInput& model : models) {
    XF_CHECK(names.insert(model.model).second, UserError, "SMAT: {} is there twice", model.model);
    XF_CHECK(std::isfinite(model.examples_per_s) && model.examples_per_s > 0, UserError,
             "SMAT: {}: expected a speed above 0, got {}", model.model, model.examples_per_s);
    XF_CHECK(std::isfinite(model.peak_memory) && model.peak_memory > 0, UserError,
             "SMAT: {}: expected a memory above 0, got {}", model.model, model.peak_memory);
    XF_CHECK(std::isfinite(model.accuracy), UserError, "SMAT: {}: expected an accuracy, got {}", model.model,
             model.accuracy);
  }
  const std::vector<double> speed = spread_out(models, &SmatInput::examples_per_s, rounding);
  const std::vector<double> memory = spread_out(models, &SmatInput::peak_memory, rounding);
  const std::vector<double> accuracy = spread_out(models, &SmatInput::accuracy, rounding);
  std::vector<SmatScore> result;
  for (size_t i = 0; i < models.size(); ++i)
    result.push_back({speed[i], 1 - memory[i], higher_is_better ? accuracy[i] : 1 - accuracy[i]});
  return result;
}

}  // namespace xformer::reporting
