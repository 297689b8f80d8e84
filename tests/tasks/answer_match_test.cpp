// F1 and exact match of answers against the numbers of SQuAD's evaluation.
#include "tasks/answer_match.h"

#include <catch2/catch.hpp>

namespace xformer::answer_match_test {

using namespace tasks;

TEST_CASE("answers are scored as SQuAD scores them") {
  struct Pair {
    std::string answer, right;
    bool exact;
    double f1;
  };
  // transformers 4.46.3, data/metrics/squad_metrics.py: compute_exact and compute_f1, after evaluate-v2.0.
  const std::vector<Pair> pairs{
      {"The Eiffel Tower", "Eiffel tower", true, 1},
      {"in the year 1889, Paris", "1889", false, 0.4},
      {"a cat an apple the", "cat apple", true, 1},
      {"", "the", true, 1},
      {"London", "", false, 0},
      {"don't stop", "dont stop", true, 1},
      {"the theatre", "theatre", true, 1},
      {"New  York\tCity", "york new city of lights", false, 0.7499999999999999},
      {"x x y", "x y y", false, 0.6666666666666666},
      {"U.S.A.", "usa", true, 1},
      {"half-time", "halftime", true, 1},
      {"Z\xc3\xbcrich", "z\xc3\xbcrich!", true, 1},
      {"on the-spot", "on thespot", true, 1},
  };
  for (const Pair& pair : pairs) {
    CAPTURE(pair.answer, pair.right);
    const AnswerMatch match = match_answer(pair.answer, {pair.right});
    CHECK(match.exact == pair.exact);
    CHECK(match.f1 == Approx(pair.f1).margin(1e-15));
  }
}

TEST_CASE("of several right answers the best counts, in each metric") {
  const AnswerMatch match = match_answer("New York City", {"Boston", "the city of New York", "York"});
  CHECK_FALSE(match.exact);
  CHECK(match.f1 == Approx(2 * (3.0 / 3) * (3.0 / 4) / (3.0 / 3 + 3.0 / 4)));
  CHECK(match_answer("york", {"Boston", "New York", "York!"}).exact);
}

TEST_CASE("no right answer is an empty one") {
  CHECK(match_answer("", {}).exact);
  CHECK(match_answer("the", {}).f1 == 1);
  CHECK_FALSE(match_answer("Paris", {}).exact);
  CHECK(match_answer("Paris", {}).f1 == 0);
}

}  // namespace xformer::answer_match_test
