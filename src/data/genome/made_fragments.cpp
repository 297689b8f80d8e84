#include "data/genome/made_fragments.h"

#include <array>
#include <numeric>
#include <utility>

#include "core/random.h"

namespace xformer::data {

std::string made_fragment(std::string promoter, uint64_t seed, uint64_t number) {
  Stream numbers(seed, number);
  std::array<size_t, kFragmentParts> parts{};
  std::iota(parts.begin(), parts.end(), size_t{0});
  for (size_t i = 0; i < kSubstitutedParts; ++i) {
    std::swap(parts[i], parts[i + numbers.next_below(parts.size() - i)]);
    const size_t end = (parts[i] + 1) * promoter.size() / parts.size();
    for (size_t at = parts[i] * promoter.size() / parts.size(); at < end; ++at)
      promoter[at] = "ACGT"[numbers.next_below(4)];
  }
  return promoter;
}

}  // namespace xformer::data
