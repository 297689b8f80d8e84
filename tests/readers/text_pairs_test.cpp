// Lines of articles and abstracts, of questions and answers: every layout, and what a damaged line is told.
#include "readers/text_pairs.h"

#include <catch2/catch.hpp>

#include "core/error.h"

namespace xformer::text_pairs_test {

using namespace readers;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}
std::string summary_refusal(std::string_view line) {
  return refusal([&] { (void)parse_summary_line(line, "a.jsonl:3"); });
}
std::string question_refusal(std::string_view line) {
  return refusal([&] { (void)parse_question_line(line, "a.jsonl:3"); });
}

}  // namespace

TEST_CASE("an article and its abstract are read in each published layout", "[pairs]") {
  const auto parsed = [](std::string_view line) {
    const SummaryLine read = parse_summary_line(line, "here");
    return std::pair{read.article, read.summary};
  };
  using Pair = std::pair<std::string, std::string>;
  CHECK(parsed(R"({"article": "A\nb", "abstract": "c <S>", "section_names": "x"})") == Pair{"A\nb", "c <S>"});
  CHECK(
      parsed(R"({"abstract_text": ["<S> one . </S>", "<S> two </S>"], "article_text": ["A", "b"], "labels": null})") ==
      Pair{"A\nb", "one .\ntwo"});
  CHECK(parsed(R"({"publication_number": "US-1", "abstract": "c", "description": "A"})") == Pair{"A", "c"});
  CHECK(parsed(R"({"article": "\u00e9\ud83d\ude00", "abstract": []})") == Pair{"\xc3\xa9\xf0\x9f\x98\x80", ""});
}

TEST_CASE("a question, its context and its answers are read in every form that answers have", "[pairs]") {
  const auto answers = [](const std::string& form) {
    const QuestionLine read =
        parse_question_line(R"({"question": "q", "context": "c", "answers": )" + form + "}", "here");
    CHECK((read.question == "q" && read.context == "c"));
    return read.answers;
  };
  using Answers = std::vector<std::string>;
  CHECK(answers(R"("x")") == Answers{"x"});
  CHECK(answers(R"(["x", "y"])") == Answers{"x", "y"});
  CHECK(answers(R"({"text": ["x"], "answer_start": [3]})") == Answers{"x"});
  CHECK(answers(R"([{"text": "x", "answer_start": 3}])") == Answers{"x"});
  CHECK(answers("[]").empty());
  CHECK(answers(R"({"answer_start": [], "text": []})").empty());
}

TEST_CASE("a line that is no example gets one error that says where and what", "[pairs]") {
  for (const std::string_view line : {"", "{", "not json", "[1, 2]", "3", "{\"article\": \"a\"} x",
                                      "{\"article\": \"\\ud800\"}", "{\"article\": 1e999}"}) {
    CAPTURE(std::string(line));
    CHECK_THAT(summary_refusal(line), StartsWith("a.jsonl:3: expected a JSON object, found"));
  }
  CHECK_THAT(summary_refusal("{\"article\": \"\xff\xfe\", \"abstract\": \"\"}"), Contains("expected text in UTF-8"));
  CHECK_THAT(summary_refusal(R"({"article": "a", "abstrac": "b"})"),
             Contains("the field \"abstract\" is missing") && Contains("'abstrac'"));
  CHECK_THAT(summary_refusal(R"({"text": "a"})"),
             Contains("\"article_text\" and \"abstract_text\"") && Contains("'text'"));
  CHECK_THAT(summary_refusal("{}"), Contains("the object is empty"));
  CHECK_THAT(summary_refusal(R"({"article": 3, "abstract": "b"})"),
             Contains("expected \"article\" to be a text or a list of texts, found number"));
  CHECK_THAT(summary_refusal(R"({"article": "a", "abstract": ["b", null]})"),
             Contains("expected \"abstract\" to be a list of texts, found null in it"));
  CHECK_THAT(question_refusal(R"({"question": "q", "context": "c"})"), Contains("the field \"answers\" is missing"));
  CHECK_THAT(question_refusal(R"({"question": "q", "context": "c", "answers": 4})"), Contains("found number"));
  CHECK_THAT(question_refusal(R"({"question": "q", "context": "c", "answers": {"texts": []}})"),
             Contains("\"answers\": the field \"text\" is missing"));
  CHECK_THAT(question_refusal(R"({"question": "q", "context": "c", "answers": [["x"]]})"),
             Contains("expected an answer to be a text, found array"));
  CHECK_THAT(question_refusal(R"({"question": {}, "context": "c", "answers": []})"),
             Contains("expected \"question\" to be a text or a list of texts, found object"));
}

TEST_CASE("lines that nest deep are refused like any other", "[pairs]") {
  CHECK_THAT(summary_refusal(std::string(1'000'000, '[')), Contains("expected a JSON object"));
  CHECK_THAT(summary_refusal(std::string(100'000, '[') + std::string(100'000, ']')), Contains("found array"));
}

}  // namespace xformer::text_pairs_test
