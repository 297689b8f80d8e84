// BERT's masks (Devlin et al. 2019, 3.1): of the places that may be asked, a share is chosen, and of those each is
// replaced by the mask, by a symbol drawn from all, or left as it is.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"

namespace xformer::data {

struct MaskRule {
  double share = 0.15;  // of the places, rounded to a whole number, one at least
  double masked = 0.8, replaced = 0.1;
};

enum class MaskKind : uint8_t { kMask, kReplaced, kKept };
struct MaskedPlace {
  int64_t place = 0;
  MaskKind kind = MaskKind::kMask;
  uint64_t drawn = 0;  // of kReplaced: below `symbols`
};

// Of places 0 to count - 1, each at most once, as `numbers` decide.
[[nodiscard]] inline std::vector<MaskedPlace> drawn_masks(int64_t count, int64_t symbols, const MaskRule& rule,
                                                          Stream& numbers) {
  if (count == 0) return {};
  const auto wanted = static_cast<int64_t>(rule.share * static_cast<double>(count) + 0.5);
  std::vector<int64_t> places(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) places[static_cast<size_t>(i)] = i;
  std::vector<MaskedPlace> result(static_cast<size_t>(wanted < 1 ? 1 : wanted));
  for (size_t i = 0; i < result.size(); ++i) {  // Fisher and Yates, as far as it is needed
    std::swap(places[i], places[i + numbers.next_below(static_cast<uint64_t>(count) - i)]);
    const double kind = numbers.next_unit();
    result[i].place = places[i];
    result[i].kind = kind < rule.masked                   ? MaskKind::kMask
                     : kind < rule.masked + rule.replaced ? MaskKind::kReplaced
                                                          : MaskKind::kKept;
    if (result[i].kind == MaskKind::kReplaced) result[i].drawn = numbers.next_below(static_cast<uint64_t>(symbols));
  }
  return result;
}

}  // namespace xformer::data
