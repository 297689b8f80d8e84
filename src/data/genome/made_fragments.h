// Fragments that are no promoters, made of promoters (Oubounyt et al., DeePromoter, 2019; Zaheer et al., Big Bird,
// 2020, appendix F.2): a promoter is cut into 20 parts, of which 12 drawn at random get random letters and 8 stay.
#pragma once

#include <cstdint>
#include <string>

namespace xformer::data {

inline constexpr int64_t kFragmentParts = 20, kSubstitutedParts = 12;

// Of `promoter`, letters of kNucleotides: part i is those from floor(i n / 20) to floor((i + 1) n / 20), a new letter
// is one of A, C, G and T, each as likely. A function of the letters, the seed and the promoter's number alone.
[[nodiscard]] std::string made_fragment(std::string promoter, uint64_t seed, uint64_t number);

}  // namespace xformer::data
