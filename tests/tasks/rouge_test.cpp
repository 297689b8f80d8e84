// ROUGE and its stems against the numbers of the packages rouge-score and NLTK.
#include "tasks/rouge.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <sstream>

#include "tasks/porter_stemmer.h"

namespace xformer::rouge_test {

using namespace tasks;

TEST_CASE("stems are NLTK's") {
  // nltk 3.10.4, PorterStemmer().stem(word).
  std::istringstream stems(
      "caresses caress ponies poni ties tie dies die cats cat feed feed agreed agre plastered plaster bled "
      "bled motoring motor sing sing conflated conflat troubled troubl sized size hopping hop tanned tan "
      "falling fall hissing hiss fizzed fizz failing fail filing file happy happi sky sky enjoy enjoy by by "
      "say say relational relat conditional condit valency valenc hesitancy hesit digitizer digit "
      "conformably conform radically radic differently differ vilely vile analogously analog vietnamization "
      "vietnam predication predic operator oper feudalism feudal decisiveness decis hopefulness hope "
      "callousness callous formality formal sensitivity sensit sensibility sensibl geology geolog theology "
      "theolog hopefully hope triplicate triplic formative form formalize formal electricity electr "
      "electrical electr hopeful hope goodness good revival reviv allowance allow inference infer airliner "
      "airlin gyroscopic gyroscop adjustable adjust defensible defens irritant irrit replacement replac "
      "adjustment adjust dependent depend adoption adopt homologou homolog communism commun activate activ "
      "angularity angular homologous homolog effective effect bowdlerize bowdler probate probat rate rate "
      "cease ceas controlling control roll roll dying die skies sky news news innings inning proceed "
      "proceed succeed succeed 4096 4096 y2k y2k us us ied i died die dried dri summarization summar "
      "transformers transform generally gener");
  int64_t count = 0;
  for (std::string word, stem; stems >> word >> stem; ++count)
    CHECK((word + ": " + porter_stem(word)) == word + ": " + stem);
  CHECK(count == 95);
}

TEST_CASE("words are runs of ASCII letters and digits") {
  CHECK(rouge_words("It's 16GB -- the BEDS\xe2\x80\x99 end_of") ==
        std::vector<std::string>{"it", "s", "16gb", "the", "bed", "end", "of"});
  CHECK(rouge_words(" \n").empty());
}

TEST_CASE("scores are those of rouge-score") {
  struct Numbers {
    double precision, recall, f;
  };
  struct Pair {
    std::string reference, text;
    std::vector<Numbers> scores;  // rouge1, rouge2, rougeL
  };
  // Package rouge-score in its version 0.1.2: RougeScorer(["rouge1", "rouge2", "rougeL"],
  // use_stemmer=True).score(reference, text).
  const std::vector<Pair> pairs{
      {"The cat was found under the bed.",
       "the cat was under the bed",
       {{1, 0.8571428571428571, 0.923076923076923},
        {0.8, 0.6666666666666666, 0.7272727272727272},
        {1, 0.8571428571428571, 0.923076923076923}}},
      {"police killed the gunman", "police kill the gunman", {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
      {"police killed the gunman",
       "the gunman kill police",
       {{1, 1, 1}, {0.3333333333333333, 0.3333333333333333, 0.3333333333333333}, {0.5, 0.5, 0.5}}},
      {"The quick brown fox jumps over the lazy dog. The dog sleeps.",
       "A fast brown fox jumped over lazy dogs; the dogs slept.",
       {{0.7272727272727273, 0.6666666666666666, 0.6956521739130435},
        {0.6, 0.5454545454545454, 0.5714285714285713},
        {0.7272727272727273, 0.6666666666666666, 0.6956521739130435}}},
      {"We present a generalization of relational attention, with applications to summarizing scientific articles.",
       "This paper generalizes attention relationally and applies it to the summarization of science articles.",
       {{0.5, 0.5384615384615384, 0.5185185185185186},
        {0, 0, 0},
        {0.35714285714285715, 0.38461538461538464, 0.3703703703703704}}},
      {"a b a b a b",
       "b a b a",
       {{1, 0.6666666666666666, 0.8}, {1, 0.6, 0.7499999999999999}, {1, 0.6666666666666666, 0.8}}},
      {"Efficient transformers: 4096 tokens, O(n log n) time & 16GB of memory",
       "transformers need O(n^2) time; efficient ones O(n) with 4096 tokens",
       {{0.6153846153846154, 0.6666666666666666, 0.64},
        {0.16666666666666666, 0.18181818181818182, 0.17391304347826086},
        {0.3076923076923077, 0.3333333333333333, 0.32}}},
      {"completely different words here", "nothing shared anywhere", {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
      {"na\xc3\xafve caf\xc3\xa9 owners",
       "naive cafe owner",
       {{0.3333333333333333, 0.25, 0.28571428571428575}, {0, 0, 0}, {0.3333333333333333, 0.25, 0.28571428571428575}}},
      {"the the the the", "the", {{1, 0.25, 0.4}, {0, 0, 0}, {1, 0.25, 0.4}}},
      {"one line here\nanother line there\nand a third",
       "and a third\none line here",
       {{1, 0.6666666666666666, 0.8}, {0.8, 0.5, 0.6153846153846154}, {0.5, 0.3333333333333333, 0.4}}},
      {"dying flies tied ties skies news proceed geology theological hopefully generally",
       "die fly tie tie sky new proceeds geologies theology hopeful general",
       {{0.7272727272727273, 0.7272727272727273, 0.7272727272727273},
        {0.5, 0.5, 0.5},
        {0.7272727272727273, 0.7272727272727273, 0.7272727272727273}}},
      {"", "", {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
      {"word", "", {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
  };
  for (const Pair& pair : pairs) {
    const auto reference = rouge_words(pair.reference), text = rouge_words(pair.text);
    const std::array<RougeScore, 3> scores{rouge_n(reference, text, 1), rouge_n(reference, text, 2),
                                           rouge_l(reference, text)};
    for (size_t i = 0; i < 3; ++i) {
      CAPTURE(pair.reference, pair.text, i);
      CHECK(scores[i].precision == Approx(pair.scores[i].precision).margin(1e-15));
      CHECK(scores[i].recall == Approx(pair.scores[i].recall).margin(1e-15));
      CHECK(scores[i].f() == Approx(pair.scores[i].f).margin(1e-15));
    }
  }
}

TEST_CASE("the longest common subsequence is that of the definition") {
  // By trying every choice of words of the text, over all texts of up to 6 words of two against a few references.
  const auto words = [](unsigned bits, size_t size) {
    std::vector<std::string> result;
    for (size_t i = 0; i < size; ++i) result.emplace_back(bits >> i & 1 ? "x" : "y");
    return result;
  };
  const auto contains = [](const std::vector<std::string>& all, const std::vector<std::string>& some) {
    size_t found = 0;
    for (const std::string& word : all)
      if (found < some.size() && word == some[found]) ++found;
    return found == some.size();
  };
  for (const unsigned reference_bits : {0U, 19U, 45U})
    for (unsigned bits = 0; bits < 64; ++bits) {
      const auto reference = words(reference_bits, 5), text = words(bits, 6);
      size_t longest = 0;
      for (unsigned choice = 0; choice < 64; ++choice) {
        std::vector<std::string> some;
        for (size_t i = 0; i < 6; ++i)
          if (choice >> i & 1) some.push_back(text[i]);
        if (contains(reference, some)) longest = std::max(longest, some.size());
      }
      CHECK(rouge_l(reference, text).recall == Approx(static_cast<double>(longest) / 5));
    }
}

}  // namespace xformer::rouge_test
