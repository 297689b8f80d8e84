#include "plan/update_rule.h"

#define XFORMER_DESCRIBE_TYPE xformer::plan::UpdateRule
#include "plan/optimizers.inc"

namespace xformer::plan {

const Registry<UpdateRule>& all_optimizers() {
  static const Registry<UpdateRule> kOptimizers("optimiser", [] {
    std::vector<UpdateRule> result;
    optimizers::for_each_family([&](UpdateRule one) { result.push_back(std::move(one)); });
    return result;
  }());
  return kOptimizers;
}

}  // namespace xformer::plan
