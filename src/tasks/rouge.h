// ROUGE: how much of a written text and of a reference is the same (Lin, "ROUGE: A Package for Automatic Evaluation of
// Summaries", ACL workshop 2004), as the package rouge-score counts it, whose numbers are those of recent papers:
//
//   words    the text in lower case, cut at everything but a to z and 0 to 9 (letters beyond ASCII cut too); words of
//            more than three characters without their endings (porter_stemmer.h)
//   ROUGE-N  matches are the n-grams of both, each as often as it occurs in the one that has it less often; recall is
//            their share of the reference's n-grams, precision of the text's
//   ROUGE-L  matches are the longest common subsequence of the two sequences of words, over the whole texts, line ends
//            having no meaning (what some papers call ROUGE-L, the union over lines, is ROUGE-Lsum there)
//   F        2 P R / (P + R), 0 where nothing is common
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xformer::tasks {

struct RougeScore {
  double precision = 0, recall = 0;  // 0 where there is nothing to have a share of
  [[nodiscard]] double f() const;
};

// Words of a text as ROUGE counts them.
[[nodiscard]] std::vector<std::string> rouge_words(std::string_view text);

[[nodiscard]] RougeScore rouge_n(const std::vector<std::string>& reference, const std::vector<std::string>& text,
                                 size_t n);
[[nodiscard]] RougeScore rouge_l(const std::vector<std::string>& reference, const std::vector<std::string>& text);

}  // namespace xformer::tasks
