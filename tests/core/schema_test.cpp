// One declaration per option: reading, writing, types and ranges.
#include <catch2/catch.hpp>

#include "core/schema.h"
#include "scratch.h"

namespace xformer::schema_test {

using Catch::Matchers::Contains;

struct Sample {
  bool flag = false;
  int64_t count = 4;
  double rate = 0.5;
  std::string kind = "round-robin";
  std::vector<int64_t> sizes{1, 2};
};

const Schema<Sample>& schema() {
  static const Schema<Sample> kSchema = Schema<Sample>()
                                            .add(&Sample::flag, "flag", "a flag")
                                            .add(&Sample::count, "count", "a count", at_least(1))
                                            .add(&Sample::rate, "rate", "a rate", fraction_below_one())
                                            .add(&Sample::kind, "kind", "a kind", one_of({"round-robin", "random"}))
                                            .add(&Sample::sizes, "sizes", "sizes", each_at_least(1));
  return kSchema;
}

std::string refusal(const std::string& name, const Json& value) {
  return scratch::message_of<UserError>([&] { (void)schema().read(Json{{name, value}}); });
}

TEST_CASE("absent options keep the defaults of the struct, and writing gives what reading took") {
  CHECK(schema().write(schema().read(Json::object())) ==
        Json{{"flag", false}, {"count", 4}, {"rate", 0.5}, {"kind", "round-robin"}, {"sizes", {1, 2}}});
  const Json values{{"flag", true}, {"count", 9}, {"rate", 0.25}, {"kind", "random"}, {"sizes", {3}}};
  CHECK(schema().write(schema().read(values)) == values);
}

TEST_CASE("the words of a command line become values of the option's type") {
  const Sample sample =
      schema().read({{"flag", "yes"}, {"count", "1e3"}, {"rate", "+.125"}, {"kind", "Round_Robin"}, {"sizes", "4,5"}});
  CHECK(sample.flag);
  CHECK(sample.count == 1000);
  CHECK(sample.rate == 0.125);
  CHECK(sample.kind == "round-robin");
  CHECK(sample.sizes == std::vector<int64_t>{4, 5});
}

TEST_CASE("wrong types and values out of range are refused with what was expected and what came") {
  CHECK_THAT(refusal("count", 0), Contains("at least 1") && Contains("got 0"));
  CHECK_THAT(refusal("count", "12x"), Contains("an integer") && Contains("12x"));
  CHECK_THAT(refusal("count", 1.5), Contains("an integer") && Contains("1.5"));
  CHECK_THAT(refusal("rate", "nan"), Contains("a number"));
  CHECK_THAT(refusal("rate", 1), Contains("below 1"));
  CHECK_THAT(refusal("flag", "maybe"), Contains("true or false"));
  CHECK_THAT(refusal("kind", "randon"), Contains("did you mean 'random'?"));
  CHECK_THAT(refusal("sizes", "1,0"), Contains("expected a list, each at least 1, got [1,0]"));
  CHECK_THAT(refusal("sizes", Json::array()), Contains("each at least 1"));
}

TEST_CASE("a name the schema lacks is a bug of the caller") {
  CHECK_THROWS_AS(schema().read({{"colour", 1}}), InternalError);
}

TEST_CASE("options tell their type, help and default") {
  const std::vector<OptionInfo>& options = schema().options();
  REQUIRE(options.size() == 5);
  CHECK(options[1].name == "count");
  CHECK(options[1].type == OptionType::kInteger);
  CHECK(options[1].fallback == 4);
  CHECK(options[1].rule.text == "at least 1");
  CHECK(type_name(options[4].type) == "a list of integers");
}

struct Extended : Sample {
  Extended() { count = 7; }
  int64_t more = 1;
};

TEST_CASE("a schema takes over options of the struct that its own extends, with defaults of its own") {
  const Schema<Extended> all = Schema<Extended>().include(schema()).add(&Extended::more, "more", "more");
  CHECK(all.options().size() == schema().options().size() + 1);
  CHECK(all.read({{"count", 9}}).count == 9);
  const Schema<Extended> some =
      Schema<Extended>().include(schema(), {"kind", "count"}).add(&Extended::more, "more", "more");
  REQUIRE(some.options().size() == 3);
  CHECK((some.options()[0].name == "kind" && some.options()[1].fallback == 7 && schema().options()[1].fallback == 4));
  CHECK(some.read(Json::object()).count == 7);
  CHECK(some.read(Json::object()).rate == 0.5);
  CHECK(some.write(some.read({{"more", 3}})) == Json{{"kind", "round-robin"}, {"count", 7}, {"more", 3}});
  CHECK_THROWS_AS(Schema<Extended>().include(schema(), {"none"}), InternalError);
}

}  // namespace xformer::schema_test
