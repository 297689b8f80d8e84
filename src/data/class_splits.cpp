#include "data/class_splits.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/text.h"

namespace xformer::data {
namespace {

// Of products such as 0.7 * 10, which may lie just below a whole number.
int64_t floor_of(double number) { return static_cast<int64_t>(std::floor(number + 1e-9)); }

}  // namespace

std::vector<Split> class_splits(std::span<const int64_t> labels, std::span<const std::optional<Split>> made,
                                double dev_share, double test_share, uint64_t seed) {
  std::vector<Split> result(labels.size(), Split::kTrain);
  bool any = false, dev = false;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (!made[i]) continue;
    any = true;
    dev = dev || *made[i] == Split::kDev;
    result[i] = *made[i];
  }
  if (dev) return result;
  if (any) test_share = 0;
  std::map<int64_t, std::vector<size_t>> classes;
  for (size_t i = 0; i < labels.size(); ++i)
    if (result[i] == Split::kTrain) classes[labels[i]].push_back(i);
  for (auto& [label, places] : classes) {
    Stream numbers(derive_seed(seed, "data/class-splits"), static_cast<uint64_t>(label));
    for (size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[numbers.next_below(i)]);
    const auto count = static_cast<double>(places.size());
    const int64_t train = floor_of((1 - dev_share - test_share) * count), rest = floor_of((1 - test_share) * count);
    for (auto i = static_cast<size_t>(train); i < places.size(); ++i)
      result[places[i]] = static_cast<int64_t>(i) < rest ? Split::kDev : Split::kTest;
  }
  return result;
}

void check_shares(double dev_share, double test_share) {
  XF_CHECK(dev_share + test_share < 1, UserError,
           "data.dev_share and data.test_share: {:g} and {:g} of the examples leave nothing to train on", dev_share,
           test_share);
}

std::optional<Split> split_by_name(const std::string& name) {
  if (name == "val" || name == "valid" || name == "validation") return Split::kDev;
  for (const Split split : kAllSplits)
    if (name == split_name(split)) return split;
  return std::nullopt;
}

std::optional<Split> split_in_name(const std::string& name) {
  std::string word;
  for (const char letter : name + ".") {
    if (letter != '-' && letter != '_' && letter != '.') {
      word += letter;
      continue;
    }
    if (const auto split = split_by_name(word)) return split;
    word.clear();
  }
  return std::nullopt;
}

std::vector<std::string> listed_names(const std::string& option, const std::string& list) {
  std::vector<std::string> names;
  if (trim(list).empty()) return names;
  for (const std::string_view part : split(list, ',')) {
    const std::string name(trim(part));
    XF_CHECK(!name.empty(), UserError, "{}: expected names with a comma between them, got '{}'", option, list);
    XF_CHECK(std::find(names.begin(), names.end(), name) == names.end(), UserError, "{}: '{}' comes twice in '{}'",
             option, name, list);
    names.push_back(name);
  }
  return names;
}

}  // namespace xformer::data
