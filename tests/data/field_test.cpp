// Fields: their elements, names and JSON.
#include "data/field.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "scratch.h"

namespace xformer::field_test {

using namespace data;
using Catch::Matchers::Contains;

TEST_CASE("elements have 1, 2 or 4 bytes and are known by name") {
  const std::vector<std::pair<Element, int64_t>> bytes{
      {Element::kU8, 1}, {Element::kU16, 2}, {Element::kI32, 4}, {Element::kF32, 4}, {Element::kBool, 1}};
  for (const auto& [element, size] : bytes) {
    CHECK(element_bytes(element) == size);
    CHECK(parse_element(element_name(element)) == element);
  }
  CHECK_THAT(scratch::message_of<DataError>([] { (void)parse_element("u61"); }), Contains("did you mean 'u16'?"));
  CHECK((narrowest(256) == Element::kU8 && narrowest(257) == Element::kU16));
  CHECK((narrowest(65'536) == Element::kU16 && narrowest(65'537) == Element::kI32));
}

TEST_CASE("a field comes back from its JSON, and is found by name") {
  const Fields fields{{"tokens", Element::kU16, Axes::kToken, 1, 30'000},
                      {"columns", Element::kF32, Axes::kTokenByK, 7},
                      {"share", Element::kF32, Axes::kExample, 1, 0, false, 1}};
  for (const Field& field : fields) CHECK(field_from_json(field_to_json(field)) == field);
  CHECK((index_of(fields, "columns") == 1 && index_of(fields, "column") == -1));
  Json bad = field_to_json(fields[0]);
  bad["axes"] = "tokens";
  CHECK_THROWS_AS(field_from_json(bad), DataError);
}

}  // namespace xformer::field_test
