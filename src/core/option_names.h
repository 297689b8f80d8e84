// What other programs call the options of a plan, and values of options as they are written.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"

namespace xformer {

// "lr", "batch-size", "model.depth" -> "training.learning_rate", "training.batch", "model.layers"; "" for a word that
// means none of them.
[[nodiscard]] std::string usual_option(std::string_view word);

// A value as it is written behind "key=": a text without its quotes, the rest as JSON.
[[nodiscard]] std::string value_word(const Json& value);

}  // namespace xformer
