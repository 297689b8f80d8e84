// Near misses find the name that was meant, far ones do not.
#include <catch2/catch.hpp>

#include "core/names.h"

namespace xformer::names_test {

using Catch::Matchers::Contains;

TEST_CASE("underscore and dash and case are one") {
  CHECK(canonical_name("MRA2_s") == "mra2-s");
  CHECK(canonical_name("mra2-s") == "mra2-s");
}

TEST_CASE("edit distance counts insertions, deletions, substitutions and swaps") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "axc") == 1);
  CHECK(edit_distance("abc", "acb") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("a near miss is answered with the nearest name") {
  const std::vector<std::string> models{"linformer", "mrs-linformer", "mrs-linear", "performer", "softmax"};
  CHECK(nearest_name("mrs-linfomer", models) == "mrs-linformer");
  CHECK(nearest_name("Linfromer", models) == "linformer");
  CHECK(nearest_name("mrs_linformer", models) == "mrs-linformer");
  CHECK(nearest_name("mrs-adamra", {"M", "mra2", "adamra"}).empty());  // a letter is near to no word
  CHECK(nearest_name("projected_length", {"projected_len", "heads", "project"}) == "projected_len");
}

TEST_CASE("of many names a far word lists the five nearest") {
  std::vector<std::string> many;
  for (const char* name : {"adamra", "bigbird", "etc", "fmm", "linear", "linformer", "longformer", "luna", "mrs-etc"})
    many.emplace_back(name);
  CHECK(nearest_names("form", many, 2) == std::vector<std::string>{"linformer", "longformer"});
  CHECK(unknown_name_message("model", "mra-etc-2", many) == "unknown model 'mra-etc-2'; did you mean 'mrs-etc'?");
  CHECK(unknown_name_message("model", "etalon", many) ==
        "unknown model 'etalon'; the nearest of 9: etc, adamra, luna, fmm, linear");
  many.pop_back();
  CHECK_THAT(unknown_name_message("model", "etalon", many), Contains("known: adamra, bigbird, etc, fmm"));
}

TEST_CASE("a far word has no nearest name and lists all") {
  CHECK(nearest_name("banana", {"linformer", "softmax"}).empty());
  CHECK(nearest_name("", {"linformer"}).empty());
  CHECK(nearest_name("x", {}).empty());
  CHECK(unknown_name_message("model", "banana", {"linformer", "softmax"}) ==
        "unknown model 'banana'; known: linformer, softmax");
  CHECK_THAT(unknown_name_message("model", "linfomer", {"linformer", "softmax"}),
             Contains("did you mean 'linformer'?"));
}

TEST_CASE("in a pattern a star is any text, dots and nothing included, and a question mark one character") {
  const struct {
    const char *pattern, *name;
    bool fits;
  } cases[] = {
      {"", "", true},
      {"", "a", false},
      {"*", "", true},
      {"*", "layer0.ff", true},
      {"a", "a", true},
      {"a", "ab", false},
      {"b", "ab", false},
      {"?", "a", true},
      {"?", "", false},
      {"?", "ab", false},
      {"a?c", "a.c", true},
      {"*c", "abc", true},
      {"a*", "a", true},
      {"a*c", "abcbc", true},
      {"a*c", "abcb", false},
      {"*b*b*", "abab", true},
      {"*b*b*", "aba", false},
      {"a*?", "a", false},
      {"a*?", "ab", true},
      {"**", "x", true},
      {"*.weight", "layer0.ff.in.weight", true},
      {"layer?.*", "layer10.ff", false},
      {"*aab", "aaaab", true},
      {"a.c", "abc", false},
      {"[ab]", "a", false},
      {"A", "a", false},
  };
  for (const auto& [pattern, name, fits] : cases) {
    INFO(pattern << " on " << name);
    CHECK(matches_pattern(pattern, name) == fits);
  }
  // Stars that all could be anywhere must not cost time that grows with their number's power.
  CHECK_FALSE(matches_pattern("*a*a*a*a*a*a*a*a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST_CASE("patterns pick names in their order, each once, and one that fits none is answered") {
  const std::vector<std::string> names{"tokens", "layer0.weight", "layer0.bias", "layer1.weight"};
  const auto picked = [&](const std::vector<std::string>& patterns) {
    return matching_names("--freeze", "parameter", patterns, names);
  };
  CHECK(picked({}).empty());
  CHECK(picked({"*.weight", "layer0.*", "tokens"}) == names);
  CHECK(picked({"*.weight", "layer0.*"}) == std::vector<std::string>{"layer0.weight", "layer0.bias", "layer1.weight"});
  CHECK_THROWS_WITH(picked({"*", "tokns"}), "--freeze: 'tokns' fits the name of no parameter; did you mean 'tokens'?");
  CHECK_THROWS_WITH(picked({"classifier_*"}), Contains("there are tokens, layer0.weight, layer0.bias, layer1.weight"));
}

TEST_CASE("a long list of names is cut, but not for one more") {
  CHECK(first_names({}).empty());
  CHECK(first_names({"a", "b", "c"}, 2) == "a, b, c");
  CHECK(first_names({"a", "b", "c", "d"}, 2) == "a, b and 2 more");
}

}  // namespace xformer::names_test
