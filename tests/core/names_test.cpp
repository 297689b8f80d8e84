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
  CHECK(nearest_name("projected_length", {"projected_len", "heads", "project"}) == "projected_len");
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

}  // namespace xformer::names_test
