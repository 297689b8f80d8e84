#include "tasks/answer_match.h"

#include <algorithm>
#include <map>

namespace xformer::tasks {

namespace {

double word_f1(const std::vector<std::string>& answer, const std::vector<std::string>& right) {
  if (answer.empty() || right.empty()) return answer.empty() && right.empty() ? 1 : 0;
  std::map<std::string, int64_t> left;
  for (const std::string& word : right) ++left[word];
  double same = 0;
  for (const std::string& word : answer)
    if (const auto found = left.find(word); found != left.end() && found->second-- > 0) ++same;
  if (same == 0) return 0;
  const double precision = same / static_cast<double>(answer.size()), recall = same / static_cast<double>(right.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

std::vector<std::string> answer_words(std::string_view answer) {
  std::string letters;  // in lower case, without punctuation
  for (const char c : answer) {
    const bool punctuation =
        (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    if (!punctuation) letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  std::vector<std::string> words;
  std::string word;
  for (const char c : letters + " ") {
    // As Python's str.split() has it, of ASCII.
    if (c != ' ' && !(c >= '\t' && c <= '\r') && !(c >= '\x1c' && c <= '\x1f')) {
      word += c;
      continue;
    }
    if (!word.empty() && word != "a" && word != "an" && word != "the") words.push_back(word);
    word.clear();
  }
  return words;
}

AnswerMatch match_answer(std::string_view answer, const std::vector<std::string>& right) {
  const std::vector<std::string> words = answer_words(answer);
  if (right.empty()) return {words.empty(), words.empty() ? 1.0 : 0.0};
  AnswerMatch best;
  for (const std::string& one : right) {
    const std::vector<std::string> wanted = answer_words(one);
    best.exact = best.exact || words == wanted;
    best.f1 = std::max(best.f1, word_f1(words, wanted));
  }
  return best;
}

}  // namespace xformer::tasks
