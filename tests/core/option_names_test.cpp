// Options by the names that other programs have for them.
#include "core/option_names.h"

#include <catch2/catch.hpp>

#include "core/run_plan.h"

namespace xformer::option_names_test {

using Catch::Matchers::Contains;

TEST_CASE("usual words mean one option each, with or without its group") {
  const std::pair<const char*, const char*> cases[] = {
      {"lr", "training.learning_rate"},
      {"LR", "training.learning_rate"},
      {"training.lr", "training.learning_rate"},
      {"training.lrate", "training.learning_rate"},
      {"bs", "training.batch"},
      {"batch_size", "training.batch"},
      {"epochs", "training.epochs"},
      {"wd", "training.weight_decay"},
      {"heads", "model.heads"},
      {"num_heads", "model.heads"},
      {"depth", "model.layers"},
      {"model.depth", "model.layers"},
      {"d_model", "model.dim"},
      {"model.lr", ""},
      {"batches", ""},
      {"", ""},
      {"training.", ""},
  };
  for (const auto& [word, key] : cases) {
    INFO(word);
    CHECK(usual_option(word) == key);
  }
}

namespace {

OptionInfo number(const char* name) { return {name, OptionType::kReal, "", 1.0, {}}; }

Json resolved(const Json& values) {
  const std::vector<OptionGroup> groups{{"training", "training", {number("learning_rate"), number("batch")}},
                                        {"model", "encoder", {number("layers"), number("window")}},
                                        {"attention", "luna", {number("projected_len"), number("window")}},
                                        {"eval", "evaluation", {number("batch")}}};
  return resolve_options(groups, {{"--set", values}}).values;
}

}  // namespace

TEST_CASE("a layer may call an option otherwise where only one can be meant; plans have the declared keys") {
  const Json values = resolved({{"lr", 2}, {"depth", 3}, {"projected_len", 4}, {"batch", 5}});
  CHECK(values["training.learning_rate"] == 2);
  CHECK(values["model.layers"] == 3);
  CHECK(values["attention.projected_len"] == 4);
  CHECK((values["training.batch"] == 5 && values["eval.batch"] == 1));
  CHECK(values.size() == 7);
  CHECK_THROWS_WITH(resolved({{"window", 2}}), Contains("model.window or attention.window; say which"));
  CHECK_THROWS_WITH(resolved({{"lr", 2}, {"training.learning_rate", 3}}), Contains("are one option"));
  CHECK_THROWS_WITH(resolved({{"heads", 2}}), Contains("unknown option"));  // usual, but this model has none
}

}  // namespace xformer::option_names_test
