// Whether a written answer is one of those that are right, as SQuAD's evaluation defines it (Rajpurkar et al., "SQuAD:
// 100,000+ Questions for Machine Comprehension of Text", EMNLP 2016, section 6.1; the scripts evaluate-v1.1 and 2.0).
//
//   normal form  lower case, ASCII punctuation left out, the words a, an and the left out, blanks between words single
//   exact match  the normal forms are equal
//   F1           of the words in the normal forms, each counted as often as it occurs in both: 2 P R / (P + R). Where
//                one of them has no word, 1 if both have none (version 2.0, where a question may have no answer)
//
// Of several right answers the best counts. Bytes beyond ASCII are letters as they stand: no lower case is made of
// them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xformer::tasks {

// The words of an answer's normal form.
[[nodiscard]] std::vector<std::string> answer_words(std::string_view answer);

struct AnswerMatch {
  bool exact = false;
  double f1 = 0;
};
// Against the best of `right` in each; no right answer is one without words.
[[nodiscard]] AnswerMatch match_answer(std::string_view answer, const std::vector<std::string>& right);

}  // namespace xformer::tasks
