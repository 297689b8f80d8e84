// Which device programs a stage of feature attention launches.
#pragma once

#include "kernels/feature_attention/causal_gradients.h"

namespace xformer::kernels {

// Causal, with what comes before each part of the rows; else parts are added by whoever asked for them.
template <class Value, ProductKind kKind, int kWidth, bool kQueries, class Launch>
void run_feature_sums(const FeatureArguments& a, const Launch& launch) {
  const int64_t rows = kQueries ? a.q.rows : a.k.rows;
  const LaunchGrid grid = feature_sums_grid(a.heads(), rows, a.f, kWidth);
  if (!a.causal) return launch(grid, FeatureSumsProgram<Value, kKind, kWidth, kQueries, false>{a});
  launch(grid, FeatureSumsProgram<Value, kKind, kWidth, kQueries, true>{a});
  if (feature_division(a.heads(), rows, a.f).parts > 1)
    launch(feature_scan_grid(a.heads(), a.table_size()), FeatureScanProgram<kQueries>{a});
}

// launch(grid, program) for the programs of a stage, one behind the other.
template <class Value, ProductKind kKind, int kWidth, class Launch>
void run_feature_stage(const FeatureArguments& a, const Launch& launch) {
  const int64_t z = a.heads(), n = a.q.rows, m = a.k.rows;
  switch (a.stage) {
    case FeatureStage::kShifts:
      launch(feature_shift_grid(z, n, m, kWidth), FeatureShiftProgram<Value, kKind, kWidth>{a});
      return launch(key_largest_grid(z), KeyLargestProgram{a});
    case FeatureStage::kKeySums:
      return run_feature_sums<Value, kKind, kWidth, false>(a, launch);
    case FeatureStage::kAnswers:
      if (a.causal)
        return launch(causal_grid(z, n, kWidth, /*backward=*/false), CausalAnswerProgram<Value, kKind, kWidth>{a});
      return launch(feature_rows_grid(z, n, kWidth, 3), FeatureAnswerProgram<Value, kKind, kWidth>{a});
    case FeatureStage::kQueryGradients:
      if (a.causal)
        return launch(causal_grid(z, n, kWidth, /*backward=*/true),
                      CausalBackwardProgram<Value, kKind, kWidth, false>{a});
      return launch(feature_rows_grid(z, n, kWidth, 4), FeatureBackwardProgram<Value, kKind, kWidth, false>{a});
    case FeatureStage::kQuerySums:
      return run_feature_sums<Value, kKind, kWidth, true>(a, launch);
    case FeatureStage::kKeyGradients:
      if (a.causal)
        launch(causal_grid(z, m, kWidth, /*backward=*/true), CausalBackwardProgram<Value, kKind, kWidth, true>{a});
      else launch(feature_rows_grid(z, m, kWidth, 4), FeatureBackwardProgram<Value, kKind, kWidth, true>{a});
      if (a.apart()) launch(causal_winner_grid(z, m), CausalWinnerProgram<Value>{a});
      else if (a.map == FeatureMap::kSoftmax) launch(key_winner_grid(z), KeyWinnerProgram<Value>{a});
  }
}

// `Types` has what a device calls Half and BFloat16.
template <class Types, class Launch>
void run_feature_stage(const FeatureArguments& a, const Launch& launch) {
  with_heads<Types>(a.type, a.product,
                    [&]<class Value, ProductKind kKind>(Value, std::integral_constant<ProductKind, kKind>) {
                      feature_width(a.d, a.e) == 32 ? run_feature_stage<Value, kKind, 32>(a, launch)
                                                    : run_feature_stage<Value, kKind, 64>(a, launch);
                    });
}

}  // namespace xformer::kernels
