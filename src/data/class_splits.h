// Splits of examples in classes that the files do not make.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/source.h"

namespace xformer::data {

// `made[i]` is the split that the files put example i in; nothing: it is drawn.
//
// - No example has one: of the n of a class the first floor((1 - dev - test) n) drawn are train, those up to
//   floor((1 - test) n) dev, the rest test.
// - Train and test are there, dev is not: of the n of a class in train the first floor((1 - dev) n) drawn stay, and
//   the rest are dev.
// - All are there: as they are.
//
// The order within a class is drawn by the seed and its label alone.
[[nodiscard]] std::vector<Split> class_splits(std::span<const int64_t> labels,
                                              std::span<const std::optional<Split>> made, double dev_share,
                                              double test_share, uint64_t seed);

// UserError where nothing would be left to train on.
void check_shares(double dev_share, double test_share);

// A folder or file of a split by the name that it usually has: train, dev, val, valid, validation or test; nothing for
// others.
[[nodiscard]] std::optional<Split> split_by_name(const std::string& name);
// That a word of the name says: train of c4-train.00000-of-01024.json.gz or train_64x64.
[[nodiscard]] std::optional<Split> split_in_name(const std::string& name);

// By name of each class those of "a,b,c", in this order; blanks around them are dropped. UserError for a name that
// comes twice or is empty.
[[nodiscard]] std::vector<std::string> listed_names(const std::string& option, const std::string& list);

}  // namespace xformer::data
