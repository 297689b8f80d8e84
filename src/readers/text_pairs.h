// A line of JSON as an example of a text and what is written about it, in the layouts of published sets.
//
//   summaries  an object with an article and its summary, by the names of one set:
//                "article", "abstract"             scientific_papers (arXiv, PubMed) as strings
//                "article_text", "abstract_text"   the same as Cohan et al. published it (NAACL 2018): lists of
//                                                  sentences, those of the abstract between <S> and </S>
//                "description", "abstract"         BigPatent (Sharma et al., ACL 2019)
//   questions  an object with "question", "context" and "answers": a text, a list of texts, an object with such a list
//              under "text" (SQuAD's as published for lines), or a list of objects with a "text" each. No answer: the
//              context has none.
//
// A text is a string, or a list of strings, which are joined by line ends. Other fields are passed over. Errors are
// DataErrors that begin with `where`: no JSON, invalid UTF-8, no object, a missing field, a field of another type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xformer::readers {

struct SummaryLine {
  std::string article, summary;
};
[[nodiscard]] SummaryLine parse_summary_line(std::string_view line, const std::string& where);

struct QuestionLine {
  std::string question, context;
  std::vector<std::string> answers;
};
[[nodiscard]] QuestionLine parse_question_line(std::string_view line, const std::string& where);

}  // namespace xformer::readers
