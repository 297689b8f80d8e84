#include "tasks/porter_stemmer.h"

#include <functional>
#include <map>
#include <span>
#include <string_view>

namespace xformer::tasks {

namespace {

bool is_consonant(std::string_view word, size_t at) {
  if (word[at] == 'y') return at == 0 || !is_consonant(word, at - 1);
  return std::string_view("aeiou").find(word[at]) == std::string_view::npos;
}

// m of [C](VC)^m[V]: how often a consonant follows a vowel.
int measure(std::string_view stem) {
  int result = 0;
  for (size_t i = 1; i < stem.size(); ++i) result += is_consonant(stem, i) && !is_consonant(stem, i - 1) ? 1 : 0;
  return result;
}

bool has_vowel(std::string_view stem) {
  for (size_t i = 0; i < stem.size(); ++i)
    if (!is_consonant(stem, i)) return true;
  return false;
}

bool ends_in_double_consonant(std::string_view word) {
  const size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && is_consonant(word, n - 1);
}

// Consonant, vowel and a consonant other than w, x and y; or a word of a vowel and a consonant.
bool ends_short(std::string_view word) {
  const size_t n = word.size();
  if (n == 2) return !is_consonant(word, 0) && is_consonant(word, 1);
  return n >= 3 && is_consonant(word, n - 3) && !is_consonant(word, n - 2) && is_consonant(word, n - 1) &&
         std::string_view("wxy").find(word[n - 1]) == std::string_view::npos;
}

std::string replaced(std::string_view word, size_t cut, std::string_view ending) {
  return std::string(word.substr(0, word.size() - cut)).append(ending);
}

struct Ending {
  std::string_view ending, replacement;
};

// The first ending that the word has decides: it is replaced where the stem in front of it will have it so.
std::string with_ending(const std::string& word, std::span<const Ending> endings,
                        const std::function<bool(std::string_view stem, std::string_view ending)>& allowed) {
  for (const auto& [ending, replacement] : endings)
    if (word.ends_with(ending))
      return allowed(std::string_view(word).substr(0, word.size() - ending.size()), ending)
                 ? replaced(word, ending.size(), replacement)
                 : word;
  return word;
}

// Plurals.
std::string step_1a(const std::string& word) {
  if (word.ends_with("ies") && word.size() == 4) return replaced(word, 1, "");
  static constexpr Ending kEndings[]{{"sses", "ss"}, {"ies", "i"}, {"ss", "ss"}, {"s", ""}};
  return with_ending(word, kEndings, [](auto, auto) { return true; });
}

// -ed and -ing.
std::string step_1b(const std::string& word) {
  if (word.ends_with("ied")) return replaced(word, 3, word.size() == 4 ? "ie" : "i");
  if (word.ends_with("eed")) return measure(replaced(word, 3, "")) > 0 ? replaced(word, 1, "") : word;
  const size_t cut = word.ends_with("ed") ? 2 : word.ends_with("ing") ? 3 : 0;
  if (cut == 0) return word;
  const std::string stem = replaced(word, cut, "");
  if (!has_vowel(stem)) return word;
  for (const char* const ending : {"at", "bl", "iz"})
    if (stem.ends_with(ending)) return stem + "e";
  if (ends_in_double_consonant(stem))
    return std::string_view("lsz").find(stem.back()) == std::string_view::npos ? replaced(stem, 1, "") : stem;
  return measure(stem) == 1 && ends_short(stem) ? stem + "e" : stem;
}

std::string step_1c(const std::string& word) {
  if (!word.ends_with("y") || word.size() < 3 || !is_consonant(word, word.size() - 2)) return word;
  return replaced(word, 1, "i");
}

std::string step_2(const std::string& word) {
  if (word.ends_with("alli") && measure(replaced(word, 4, "")) > 0) return step_2(replaced(word, 2, ""));
  static constexpr Ending kEndings[]{{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
                                     {"izer", "ize"},    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"},
                                     {"eli", "e"},       {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
                                     {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"},
                                     {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},
                                     {"fulli", "ful"},   {"logi", "log"}};
  return with_ending(word, kEndings, [&](std::string_view stem, std::string_view ending) {
    // The l of -logi is of the stem, so that short ones (geo-, theo-) count.
    return measure(ending == "logi" ? std::string_view(word).substr(0, word.size() - 3) : stem) > 0;
  });
}

std::string step_3(const std::string& word) {
  static constexpr Ending kEndings[]{{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
                                     {"ical", "ic"},  {"ful", ""},   {"ness", ""}};
  return with_ending(word, kEndings, [](std::string_view stem, auto) { return measure(stem) > 0; });
}

std::string step_4(const std::string& word) {
  static constexpr Ending kEndings[]{{"al", ""},   {"ance", ""}, {"ence", ""}, {"er", ""},    {"ic", ""},
                                     {"able", ""}, {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""},
                                     {"ent", ""},  {"ion", ""},  {"ou", ""},   {"ism", ""},   {"ate", ""},
                                     {"iti", ""},  {"ous", ""},  {"ive", ""},  {"ize", ""}};
  return with_ending(word, kEndings, [](std::string_view stem, std::string_view ending) {
    return measure(stem) > 1 && (ending != "ion" || stem.ends_with('s') || stem.ends_with('t'));
  });
}

// The last e, and one of two l.
std::string step_5(std::string word) {
  if (word.ends_with('e')) {
    const std::string stem = replaced(word, 1, "");
    if (measure(stem) > 1 || (measure(stem) == 1 && !ends_short(stem))) word = stem;
  }
  if (word.ends_with("ll") && measure(replaced(word, 1, "")) > 1) word.pop_back();
  return word;
}

}  // namespace

std::string porter_stem(const std::string& word) {
  static const std::map<std::string, std::string> kIrregular{
      {"sky", "sky"},        {"skies", "sky"},       {"dying", "die"},        {"lying", "lie"},
      {"tying", "tie"},      {"news", "news"},       {"innings", "inning"},   {"inning", "inning"},
      {"outings", "outing"}, {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
      {"howe", "howe"},      {"proceed", "proceed"}, {"exceed", "exceed"},    {"succeed", "succeed"}};
  if (const auto found = kIrregular.find(word); found != kIrregular.end()) return found->second;
  if (word.size() <= 2) return word;
  return step_5(step_4(step_3(step_2(step_1c(step_1b(step_1a(word)))))));
}

}  // namespace xformer::tasks
