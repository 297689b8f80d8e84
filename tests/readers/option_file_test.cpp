// Configurations and experiments as people write them: three forms of the same content, and what each refuses.
#include "readers/option_file.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "scratch.h"

namespace xformer::readers {

using Catch::Matchers::Contains;

TEST_CASE("JSON, YAML and TOML say the same: no comments, sections as dotted keys, order as written") {
  const scratch::Folder folder;
  const Json expected = Json::parse(
      R"({"model": "linear", "training.learning_rate": 0.001, "training.batch": 3, "attention.scales": [1, 2],
          "tasks": [{"task": "listops", "set": {"model.dim": 16}}], "word": "3", "yes": true})");
  const Path files[] = {scratch::put(folder / "a.json", R"({"model": "linear",  // of the paper
        "training": {"learning_rate": 1e-3, "batch": 3}, /* few */ "attention.scales": [1, 2],
        "tasks": [{"task": "listops", "set": {"model": {"dim": 16}}}], "word": "3", "yes": true})"),
                        scratch::put(folder / "a.yaml", R"(# of the paper
model: linear
training: {learning_rate: 1e-3, batch: 3}
attention.scales: [1, 2]
tasks:
  - task: listops
    set: {model.dim: 16}
word: "3"   # in quotes it is none
yes: true
)"),
                        scratch::put(folder / "a.toml", R"(model = "linear"  # of the paper
training.learning_rate = 1e-3
training.batch = 3
attention.scales = [1, 2]
tasks = [{task = "listops", set.model.dim = 16}]
word = "3"
yes = true
)")};
  for (const Path& file : files) {
    INFO(file);
    CHECK(is_option_file(file));
    CHECK(read_option_file(file) == expected);  // the order of keys counts
  }
  CHECK_FALSE(is_option_file("a.csv"));
}

TEST_CASE("what cannot be read is a wrong option file, with line and column") {
  const scratch::Folder folder;
  const struct {
    const char *name, *text;
    std::vector<std::string> parts;
  } cases[] = {
      {"cut.json", "{\n  \"a\": }", {"cut.json", "line 2, column 8"}},
      {"cut.yaml", "a: 1\nb: [1, 2\n", {"cut.yaml", "line", "column"}},
      {"cut.toml", "a = 1\nb = \n", {"cut.toml", "line", "column"}},
      {"twice.json", R"({"a": 1, "b": {"a": 2}, "a": 3})", {"'a'", "twice"}},
      {"twice.yaml", "a: 1\nb: 2\na: 3\n", {"'a'", "twice", "line 3, column 1"}},
      {"twice.toml", "a = 1\na = 2\n", {"line 2"}},
      {"section.json", R"({"training.batch": 1, "training": {"batch": 2}})", {"'training.batch'", "twice"}},
      {"list.yaml", "- a\n- b\n", {"list.yaml", "table of keys and values", "array"}},
      {"two.yaml", "a: 1\n---\nb: 2\n", {"one YAML document, got 2"}},
      {"time.toml", "a = 1979-05-27\n", {"line 1", "time"}},
      {"key.yaml", "[a, b]: 1\n", {"word as key", "line 1"}},
      {"bomb.yaml",
       "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
       "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
       {"100,000"}},
  };
  for (const auto& [name, text, parts] : cases) {
    const Path file = scratch::put(folder / name, text);
    const std::string said = scratch::message_of<UserError>([&] { static_cast<void>(read_option_file(file)); });
    INFO(name << ": " << said);
    for (const std::string& part : parts) CHECK_THAT(said, Contains(part));
  }
  CHECK_THROWS_AS(read_option_file(folder / "missing.yaml"), DataError);
  CHECK(read_option_file(scratch::put(folder / "many.json", R"({"a": {"x": 1}, "b": {"x": 2}, "c": [{"x": 3}]})"))
            .size() == 3);  // the same key of different objects
}

TEST_CASE("an alias within its own anchor is refused") {
  CHECK_THROWS_WITH(parse_yaml("a: &x [*x]", "f"), Catch::Contains("at most 100 levels"));
}

TEST_CASE("plain words of YAML are what its core schema says") {
  const Json json = parse_yaml("[1, +2, -3, 1e3, 0.5, .5, 1., true, null, ~, yes, 1_000, inf, .inf, '1', x]", "y");
  CHECK(json.dump() == R"([1,2,-3,1000.0,0.5,0.5,1.0,true,null,null,"yes","1_000","inf",".inf","1","x"])");
}

TEST_CASE("a file takes what it extends, in whatever form, its own values win") {
  const scratch::Folder folder;
  std::filesystem::create_directory(folder / "inner");
  scratch::put(folder / "base.json", R"({"a": 1, "b": {"x": 1, "y": 1}, "c": {"x": 1, "y": 1}})");
  scratch::put(folder / "inner/middle.yaml", "extends: ../base.json\nb: {y: 2}\nc: {y: 2}\n");
  const Path top = scratch::put(folder / "top.json", R"({"extends": "inner/middle.yaml", "a": 3})");
  CHECK(read_extended_file(top, {"b"}) == Json::parse(R"({"a": 3, "b": {"x": 1, "y": 2}, "c": {"y": 2}})"));
  // Of several the later one is stronger.
  scratch::put(folder / "other.json", R"({"a": 7, "c": 8})");
  const Path two = scratch::put(folder / "two.json", R"({"extends": ["base.json", "other.json"], "b": 9})");
  CHECK(read_extended_file(two) == Json::parse(R"({"a": 7, "b": 9, "c": 8})"));
  CHECK_THROWS_WITH(read_extended_file(scratch::put(folder / "number.json", R"({"extends": 3})")),
                    Contains("extends: expected the path"));
  CHECK_THROWS_WITH(read_extended_file(scratch::put(folder / "self.json", R"({"extends": "self.json"})")),
                    Contains("in a circle"));
}

}  // namespace xformer::readers
