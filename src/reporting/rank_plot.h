// Critical-difference diagram (Demsar 2006; with Wilcoxon and Holm in place of Nemenyi: Benavoli, Corani and Mangili
// 2016): the mean ranks of models over tasks, and bars over those that tests do not tell apart.
#pragma once

#include <string>

#include "reporting/result_table.h"

namespace xformer::reporting {

// Ranks of the models that have a mean in every column (1 is the best; equal means share theirs). UserError where there
// are fewer than kLeastColumns columns, or fewer than two such models.
[[nodiscard]] std::string rank_plot_svg(const ResultTable& table);

// Mean ranks of those rows; NaN of the others.
[[nodiscard]] std::vector<double> mean_ranks(const ResultTable& table);

}  // namespace xformer::reporting
