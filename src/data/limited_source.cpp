#include "data/limited_source.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/names.h"
#include "core/text.h"
#include "data/batches/lane_order.h"

namespace xformer::data {
namespace {

struct SplitLimit {
  Split split;
  double amount;
  bool share;
};

// "dev=200", "train=0.1" or "test=5%". UserError for what is none, naming it.
SplitLimit parse_one(const std::string& part) {
  const size_t equals = part.find('=');
  XF_CHECK(equals != std::string::npos, UserError, "'{}': expected SPLIT=AMOUNT, like dev=200, train=0.1 or test=5%",
           part);
  SplitLimit one{};
  try {
    one.split = parse_split(std::string(trim(std::string_view(part).substr(0, equals))));
  } catch (const UserError& error) {
    throw UserError(fmt::format("'{}': {}", part, error.what()));
  }
  std::string_view number = trim(std::string_view(part).substr(equals + 1));
  const bool percent = number.ends_with('%');
  if (percent) number.remove_suffix(1);
  one.share = percent || number.find('.') != std::string_view::npos;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), one.amount);
  XF_CHECK(!number.empty() && error == std::errc() && end == number.data() + number.size(), UserError,
           "'{}': expected a number of examples (200), a share (0.1) or a percentage (5%), got '{}'", part,
           trim(std::string_view(part).substr(equals + 1)));
  if (percent) one.amount /= 100;
  XF_CHECK(!one.share || (one.amount > 0 && one.amount <= 1), UserError,
           "'{}': expected a share above 0 and at most {}", part, percent ? "100%" : "1.0");
  XF_CHECK(one.share || (one.amount >= 1 && one.amount == std::floor(one.amount) && one.amount < 1e15), UserError,
           "'{}': expected a whole number of examples from 1, or a share with a point or in %", part);
  return one;
}

std::vector<SplitLimit> parse(const std::string& text) {
  std::vector<SplitLimit> result;
  if (text.empty()) return result;
  for (const std::string_view part : xformer::split(text, ',')) {
    const SplitLimit one = parse_one(std::string(part));
    for (const SplitLimit& other : result)
      XF_CHECK(one.split != other.split, UserError, "'{}': {} has a limit already", part, split_name(one.split));
    result.push_back(one);
  }
  return result;
}

class LimitedSource : public DataSource {
 public:
  LimitedSource(std::unique_ptr<DataSource> whole, const std::string& limit)
      : whole_(std::move(whole)), info_(whole_->info()) {
    for (const Split split : kAllSplits) info_.sizes[static_cast<size_t>(split)] = whole_->size(split);
    const std::vector<SplitLimit> limits = parse(limit);
    for (const SplitLimit& one : limits) {
      const int64_t all = whole_->size(one.split);
      const double wanted = one.share ? std::ceil(one.amount * static_cast<double>(all)) : one.amount;
      info_.sizes[static_cast<size_t>(one.split)] = std::min(all, static_cast<int64_t>(wanted));
    }
    const auto is_whole = [&](Split split) { return info_.sizes[static_cast<size_t>(split)] == whole_->size(split); };
    if (!std::all_of(kAllSplits.begin(), kAllSplits.end(), is_whole)) info_.details["limit"] = limit;
  }

  [[nodiscard]] int64_t size(Split split) const override { return info_.sizes[static_cast<size_t>(split)]; }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    return whole_->read(split, place(split, index));
  }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] std::string shown(const Example& example) const override { return whole_->shown(example); }
  [[nodiscard]] bool slow() const override { return whole_->slow(); }
  [[nodiscard]] Example augmented(Split split, int64_t index, Stream& numbers) const override {
    return whole_->augmented(split, place(split, index), numbers);
  }
  [[nodiscard]] std::string name(Split split, int64_t index) const override {
    return whole_->name(split, place(split, index));
  }
  void mix(HostBatch& batch, Stream& numbers) const override { whole_->mix(batch, numbers); }

 private:
  [[nodiscard]] int64_t place(Split split, int64_t index) const {
    if (read_in_lanes(info_.shape, split)) return index;
    return index * whole_->size(split) / std::max<int64_t>(size(split), 1);
  }

  std::unique_ptr<DataSource> whole_;
  DataInfo info_;
};

}  // namespace

Rule limit_rule() {
  return {"of splits and how much of each, like train=0.1,dev=200,test=5%",
          [](const Json& value) {
            static_cast<void>(parse(value.get<std::string>()));  // says which part is wrong
            return true;
          },
          {}};
}

bool is_limited(const std::string& limit, Split split) {
  const std::vector<SplitLimit> all = parse(limit);
  return std::any_of(all.begin(), all.end(), [&](const SplitLimit& one) { return one.split == split; });
}

std::unique_ptr<DataSource> limited(std::unique_ptr<DataSource> source, const std::string& limit) {
  if (limit.empty()) return source;
  return std::make_unique<LimitedSource>(std::move(source), limit);
}

}  // namespace xformer::data
