#include "data/objective_source.h"

#include <algorithm>

#include "core/error.h"
#include "data/narrow_ids.h"
#include "data/text/masking.h"

namespace xformer::data {
namespace {

constexpr int64_t kHeldOutOf = 40;  // examples, the last two

// The least id that is none of padding.
int64_t first_symbol(const DataShape& task) { return std::max<int64_t>(task.id_offset, task.zero_is_padding ? 1 : 0); }

class ObjectiveSource : public DataSource {
 public:
  ObjectiveSource(std::unique_ptr<DataSource> task, const BatchingOptions& options)
      : task_(std::move(task)),
        masked_(options.objective == "masked"),
        share_(options.masked_share),
        first_(first_symbol(task_->info().shape)),
        period_(std::min(kHeldOutOf, task_->size(Split::kTrain))),
        info_(task_->info()) {
    const int64_t all = task_->size(Split::kTrain);
    XF_CHECK(all >= 3, DataError, "data.objective={}: two training examples are held out, expected 3 or more, got {}",
             options.objective, all);
    info_.shape = objective_shape(task_->info().shape, options);
    const int64_t held_out = all / period_;
    info_.sizes = {all - 2 * held_out, held_out, held_out};
    for (const char* of_the_task : {"dev", "classes", "duplicates_across_splits"}) info_.details.erase(of_the_task);
    Json objective{{"name", options.objective}};
    if (masked_) objective["masked_share"] = share_;
    objective["examples"] =
        fmt::format("of the task's train alone: of every {} the last two are dev and test", period_);
    info_.details["objective"] = objective;
    for (const Split split : kAllSplits)
      seeds_[static_cast<size_t>(split)] = derive_seed(0, "objective/masks/" + split_name(split));
    for (const Field& field : task_->info().shape.further) (field.of_tokens() ? input_places_ : input_facts_)++;
  }

  [[nodiscard]] int64_t size(Split split) const override { return info_.sizes[static_cast<size_t>(split)]; }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] bool slow() const override { return task_->slow(); }
  [[nodiscard]] std::string name(Split split, int64_t index) const override {
    return task_->name(Split::kTrain, row(split, index));
  }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    Stream numbers(seeds_[static_cast<size_t>(split)], static_cast<uint64_t>(index));
    return asked(task_->read(Split::kTrain, row(split, index)), numbers);
  }
  [[nodiscard]] Example augmented(Split split, int64_t index, Stream& numbers) const override {
    const Example example = task_->augmented(Split::kTrain, row(split, index), numbers);
    return asked(example, numbers);
  }
  [[nodiscard]] std::string shown(const Example& example) const override {
    const std::span<const int32_t> labels = example.further.back().as<int32_t>();
    std::string ids, found;
    const int64_t hidden = info_.shape.vocabulary - 1;
    example.ids[0].visit([&](const auto& stored) {
      for (size_t i = 0; i < stored.size(); ++i) {
        const auto id = static_cast<int64_t>(stored[i]) + info_.shape.id_offset;
        ids += fmt::format("{}{}", i == 0 ? "" : " ", masked_ && id == hidden ? "[MASK]" : std::to_string(id));
        if (labels[i] != kNoLabel) found += fmt::format(" {}", labels[i] + first_);
      }
    });
    return fmt::format("{}\nto be {}:{}", ids, masked_ ? "found" : "told", found);
  }

 private:
  // Where the task has it.
  [[nodiscard]] int64_t row(Split split, int64_t index) const {
    const int64_t held_out = size(Split::kDev), shown = period_ - 2;
    if (split != Split::kTrain) return index * period_ + shown + (split == Split::kTest ? 1 : 0);
    return index < held_out * shown ? index / shown * period_ + index % shown : index + 2 * held_out;
  }

  // Of the example's input alone.
  [[nodiscard]] Example asked(const Example& example, Stream& numbers) const {
    struct Buffers {
      std::vector<int32_t> ids, labels;
      std::vector<size_t> symbols;  // places that hold no padding
      NarrowIds narrow;
    };
    static thread_local Buffers buffers;
    auto& [ids, labels, symbols, narrow] = buffers;
    ids.clear();
    symbols.clear();
    const auto offset = static_cast<int32_t>(info_.shape.id_offset), first = static_cast<int32_t>(first_);
    example.ids[0].visit([&](const auto& stored) {
      const size_t length = std::min(stored.size(), static_cast<size_t>(info_.shape.max_len));
      for (size_t i = 0; i < length; ++i) {
        ids.push_back(static_cast<int32_t>(stored[i]));
        if (ids.back() + offset >= first) symbols.push_back(i);
      }
    });
    labels.assign(ids.size(), kNoLabel);
    const auto class_at = [&](size_t place) { return ids[place] + offset - first; };
    if (masked_) {
      const MaskRule rule{.share = share_, .masked = 1, .replaced = 0};
      for (const MaskedPlace& one : drawn_masks(static_cast<int64_t>(symbols.size()), 1, rule, numbers)) {
        const size_t place = symbols[static_cast<size_t>(one.place)];
        labels[place] = class_at(place);
        ids[place] = static_cast<int32_t>(info_.shape.vocabulary) - 1 - offset;
      }
    } else {
      for (size_t i = 1; i < symbols.size(); ++i)
        if (symbols[i] == symbols[i - 1] + 1) labels[symbols[i - 1]] = class_at(symbols[i]);
    }
    Example result;
    result.ids[0] = narrow.of(ids, info_.shape.vocabulary - info_.shape.id_offset);
    result.further.assign(example.further.begin(), example.further.begin() + input_places_);
    result.further.emplace_back(labels);
    result.facts.assign(example.facts.begin(), example.facts.begin() + input_facts_);
    return result;
  }

  std::unique_ptr<DataSource> task_;
  bool masked_;
  double share_;
  int64_t first_, period_, input_places_ = 0, input_facts_ = 0;
  DataInfo info_;
  std::array<uint64_t, 3> seeds_{};
};

}  // namespace

DataShape objective_shape(const DataShape& task, const BatchingOptions& options) {
  if (options.objective == "task") return task;
  const bool masked = options.objective == "masked";
  const std::string objective = "data.objective=" + options.objective;
  XF_CHECK(!task.target.of_places(), UserError,
           "{}: the task has an answer at every place already; it is trained by itself (task)", objective);
  XF_CHECK(task.sequences == 1, UserError,
           "{}: the task's examples are pairs of sequences; what is hidden or told is of one alone", objective);
  XF_CHECK(task.vocabulary > 0, UserError, "{}: the task's places hold numbers; what is hidden or told are ids",
           objective);
  DataShape shape = task;
  const int64_t classes = task.vocabulary - first_symbol(task);
  shape.target =
      place_target(classes, {.causal = !masked,
                             .symbol = "symbol",
                             .scoring = masked ? fmt::format("{:g} % masked", 100 * options.masked_share) : "window"});
  shape.masks = masked;
  shape.vocabulary += masked ? 1 : 0;
  return shape;
}

std::unique_ptr<DataSource> under_objective(std::unique_ptr<DataSource> task, const BatchingOptions& options) {
  if (options.objective == "task") return task;
  return std::make_unique<ObjectiveSource>(std::move(task), options);
}

}  // namespace xformer::data
