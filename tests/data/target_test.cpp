// What data says of its targets: fields, facts, JSON both ways.
#include "data/target.h"

#include <catch2/catch.hpp>

namespace xformer::data {

TEST_CASE("a target declares the fields of its answer and says what it is") {
  const TargetSpec one = class_target(10), two = binary_target(), number = number_target(2, 0.5);
  CHECK(
      (one.kind == "classification" && one.classes() == 10 && one.text == "class, 1 of 10" && one.fields.size() == 1));
  CHECK((two.kind == "binary" && two.classes() == 2 && two.text == "class, 1 of 2"));
  CHECK((number.kind == "regression" && number.classes() == 0 && number.text == "number" && number.has("target")));
  const TargetSpec mixed = class_target(10, {.top5 = true, .mixed = true});
  CHECK((mixed.has("second_label") && mixed.has("share") && !one.has("share") && mixed != one));
}

TEST_CASE("JSON keeps every fact of a target") {
  for (const TargetSpec& target :
       {class_target(7), class_target(9, {.top5 = true, .mixed = true}), binary_target(), number_target(3, 0.04)})
    CHECK(target_from_json(target_to_json(target)) == target);
}

}  // namespace xformer::data
