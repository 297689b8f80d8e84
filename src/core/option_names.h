// What other programs call the options of a plan.
#pragma once

#include <string>
#include <string_view>

namespace xformer {

// "lr", "batch-size", "model.depth" -> "training.learning_rate", "training.batch", "model.layers"; "" for a word that
// means none of them.
[[nodiscard]] std::string usual_option(std::string_view word);

}  // namespace xformer
