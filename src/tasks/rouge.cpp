#include "tasks/rouge.h"

#include <algorithm>
#include <map>

#include "tasks/porter_stemmer.h"

namespace xformer::tasks {

namespace {

constexpr size_t kStemmedFrom = 4;  // characters

using Counts = std::map<std::vector<std::string>, size_t>;

Counts count_ngrams(const std::vector<std::string>& words, size_t n) {
  Counts result;
  const auto size = static_cast<std::ptrdiff_t>(n);
  for (auto first = words.begin(); words.end() - first >= size; ++first) ++result[{first, first + size}];
  return result;
}

double share(size_t part, size_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

double RougeScore::f() const { return precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0; }

std::vector<std::string> rouge_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(word.size() >= kStemmedFrom ? porter_stem(word) : word);
    word.clear();
  };
  for (const char c : text) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if ((lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9')) word += lower;
    else end_word();
  }
  end_word();
  return words;
}

RougeScore rouge_n(const std::vector<std::string>& reference, const std::vector<std::string>& text, size_t n) {
  const Counts wanted = count_ngrams(reference, n), written = count_ngrams(text, n);
  size_t matches = 0, all_wanted = 0, all_written = 0;
  for (const auto& [words, count] : wanted) {
    all_wanted += count;
    if (const auto found = written.find(words); found != written.end()) matches += std::min(count, found->second);
  }
  for (const auto& [words, count] : written) all_written += count;
  return {share(matches, all_written), share(matches, all_wanted)};
}

RougeScore rouge_l(const std::vector<std::string>& reference, const std::vector<std::string>& text) {
  // A row of the table of longest common subsequences, by words of the text that are looked at.
  std::vector<size_t> longest(text.size() + 1, 0);
  for (const std::string& word : reference) {
    size_t diagonal = 0;  // of the row before, one word less
    for (size_t i = 1; i <= text.size(); ++i) {
      const size_t above = longest[i];
      longest[i] = word == text[i - 1] ? diagonal + 1 : std::max(above, longest[i - 1]);
      diagonal = above;
    }
  }
  return {share(longest.back(), text.size()), share(longest.back(), reference.size())};
}

}  // namespace xformer::tasks
