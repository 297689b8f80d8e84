// Plans: what makes one, where its values come from, and when two are the same.
#include "core/run_plan.h"

#include <catch2/catch.hpp>

namespace xformer {

namespace {

struct Old {
  int64_t batch = 8;
};
struct New : Old {
  bool fresh = true;
  int64_t window = 0;
};

const Schema<Old>& old_schema() {
  static const Schema<Old> kSchema = Schema<Old>().add(&Old::batch, "batch", "examples", at_least(1));
  return kSchema;
}
// Of a later program: `fresh` is on for new runs, what ran before ran without it; `window` is new, too.
const Schema<New>& new_schema() {
  static const Schema<New> kSchema = Schema<New>()
                                         .include(old_schema())
                                         .add(&New::fresh, "fresh", "a change for the better")
                                         .added(false)
                                         .add(&New::window, "window", "0: none")
                                         .added(0);
  return kSchema;
}

template <class Options>
RunPlan plan_of(const Schema<Options>& schema, const Json& values = Json::object()) {
  RunPlan plan;
  plan.task = "t";
  plan.model = "m";
  plan.protocol = "p";
  plan.options = resolve_options({{"training", "training", schema.options()}}, {{"--set", values}});
  return plan;
}

}  // namespace

TEST_CASE("a new option at its neutral value leaves a plan what it was") {
  const RunPlan before = plan_of(old_schema()), now = plan_of(new_schema(), {{"training.fresh", false}});
  CHECK(now.hash() == before.hash());
  CHECK(plan_differences(before.to_json(), now).empty());
  CHECK(now.to_json().contains("training.fresh"));  // a plan says all its values
  // Elsewhere it is another plan.
  const RunPlan other = plan_of(new_schema());
  CHECK(other.hash() != before.hash());
  CHECK(plan_differences(before.to_json(), other) == std::vector<std::string>{"training.fresh: (absent) -> true"});
  CHECK(plan_of(new_schema(), {{"training.fresh", false}, {"training.window", 4}}).hash() != before.hash());
}

TEST_CASE("plans differ in values and keys, but for the seed in their hash") {
  RunPlan one = plan_of(old_schema()), other = plan_of(old_schema(), {{"training.batch", 4}});
  CHECK(plan_differences(one.to_json(), other) == std::vector<std::string>{"training.batch: 8 -> 4"});
  CHECK(plan_differences(one.to_json(), other, {"training.batch"}).empty());
  CHECK(one.hash() != other.hash());
  Json more = one.to_json();
  more["training.gone"] = 1;
  CHECK(plan_differences(more, one) == std::vector<std::string>{"training.gone: 1 -> (absent)"});
  other = one;
  other.seed = 7;
  CHECK(one.hash() == other.hash());
  CHECK(plan_differences(one.to_json(), other) == std::vector<std::string>{"seed: 0 -> 7"});
}

TEST_CASE("an option that names no neutral value was at its default where a stored plan lacks it") {
  const RunPlan plan = plan_of(old_schema()), set = plan_of(old_schema(), {{"training.batch", 4}});
  Json stored = plan.to_json();
  stored.erase("training.batch");
  CHECK(plan_differences(stored, plan).empty());
  CHECK(plan_differences(stored, set).size() == 1);
}

TEST_CASE("only what somebody asked for is in the short form of a plan") {
  const Schema<New>& schema = new_schema();
  RunPlan plan;
  plan.options = resolve_options({{"training", "training", schema.options()}},
                                 {{{OriginKind::kProtocol, "protocol p"}, {{"training.batch", 2}}},
                                  {{OriginKind::kFile, "file a.json"}, {{"training.window", 3}}}});
  const Json minimal = plan.to_config(/*all=*/false);
  CHECK_FALSE(minimal.contains("training.batch"));
  CHECK_FALSE(minimal.contains("training.fresh"));
  CHECK(minimal["training.window"] == 3);
  CHECK(plan.options.origins.at("training.batch").text == "protocol p");
}

}  // namespace xformer
