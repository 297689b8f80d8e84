#include "data/duplicates.h"

#include "core/hash.h"

namespace xformer::data {

std::string content_key(std::span<const uint8_t> tokens) {
  return sha256({reinterpret_cast<const char*>(tokens.data()), tokens.size()}).substr(0, 32);
}

void DuplicateFinder::see(Split split, int64_t place, std::span<const uint8_t> tokens, double answer) {
  const auto bit = static_cast<uint8_t>(1 << static_cast<int>(split));
  const auto [entry, fresh] = seen_.try_emplace(content_key(tokens), Seen{split, place, bit, answer});
  if (fresh) return;
  Seen& seen = entry->second;
  const bool same_split = (seen.splits & bit) != 0;
  seen.splits |= bit;
  ++(same_split ? within_[static_cast<size_t>(split)] : across_);
  const std::string both = fmt::format("{}:{} repeats {}:{}", names_[static_cast<size_t>(split)], place,
                                       names_[static_cast<size_t>(seen.first_split)], seen.first_place);
  std::string& first = same_split ? first_within_ : first_across_;
  if (first.empty()) first = both;
  if (answer != seen.answer && contradictions_++ == 0) first_contradiction_ = both;
}

Json DuplicateFinder::report() const {
  Json result = Json::object();
  for (const Split split : kAllSplits) result["duplicates_within_splits"][split_name(split)] = within(split);
  result["duplicates_across_splits"] = across_;
  if (across_ > 0) result["first_duplicate_across_splits"] = first_across_;
  return result;
}

}  // namespace xformer::data
