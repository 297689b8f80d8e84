// English words without their endings (Porter, "An algorithm for suffix stripping", Program 14(3), 1980), with the
// departures of NLTK's PorterStemmer in its usual mode, which published ROUGE is counted with: words of one or two
// letters stay, some irregular forms have a stem of their own ("dying" is "die"), -ied and -ies of four letters become
// -ie, y becomes i behind a consonant that does not begin the word, -alli is cut and the word looked at once more,
// -fulli becomes -ful, and a vowel and a consonant alone end like consonant, vowel, consonant.
#pragma once

#include <string>

namespace xformer::tasks {

// Of a word in lower-case ASCII; what is neither a vowel nor y counts as a consonant, digits too.
[[nodiscard]] std::string porter_stem(const std::string& word);

}  // namespace xformer::tasks
