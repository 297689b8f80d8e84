// The layouts in which tables are published: arrays of the FT-Transformer authors (rtdl), UCI's Adult, StatLib's
// California Housing. Each gives a checked table or a DataError.
#pragma once

#include <string>

#include "data/tables/table.h"

namespace xformer::data {

// {N,C,y}_{train,val,test}.npy and info.json; N (numbers) or C (categories) may be absent. NaN in N is a missing value.
[[nodiscard]] Table read_rtdl_table(const Path& folder);

// adult.data and adult.test, plain or .gz. "?" is a category of its own. Rows of train and dev by idx_train.npy and
// idx_val.npy, in the folder or in its ft_split; without them a fifth of adult.data, drawn by the seed, is dev.
[[nodiscard]] Table read_adult_table(const Path& folder, uint64_t seed);

// cal_housing.data, plain or .gz, with or without its header: scikit-learn's eight features and the target in 100,000
// dollars, all rounded to float as in the published arrays; split 64/16/20 by the seed.
[[nodiscard]] Table read_california_table(const Path& folder, uint64_t seed);

// The folder of the table: `folder`, or the one of the set's name in it, up to three folders down, as the authors'
// archive has it (data/california_housing). DataError that says what is there.
[[nodiscard]] Path find_table(const std::string& dataset, const Path& folder, const std::string& schema);

// The files there by the names that those of tables have, in `folder` and its ft_layout and ft_split: all that
// read_table may read.
[[nodiscard]] std::vector<Path> table_files_in(const Path& folder);

// Whatever `folder` holds: files by the schema if there is one ("" for none); else the rtdl layout, in the folder or in
// its ft_layout; else, by the dataset's name ("adult", "california-housing"), the publisher's own files.
[[nodiscard]] Table read_table(const std::string& dataset, const Path& folder, const std::string& schema,
                               uint64_t seed);

}  // namespace xformer::data
