#include "models/text_search.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/pair_symbols.h"
#include "models/decoding.h"

namespace xformer::models {

void Writing::select(const at::Tensor& order) {
  const auto take = [&](State& state) {
    for (auto& [name, tensor] : state) tensor = tensor.index_select(0, order);
  };
  for (State& source : sources) take(source);
  if (source_valid.defined()) source_valid = source_valid.index_select(0, order);
  take(written.memory);
  for (State& layer : written.layers) take(layer);
}

namespace {

double penalised(double log_probability, size_t symbols, double length_penalty) {
  return log_probability / std::pow((5 + static_cast<double>(symbols)) / 6, length_penalty);
}

// The search for one source.
class Beams {
 public:
  Beams(const SearchOptions& options, size_t longest) : options_(options), longest_(longest), live_(1) {}

  struct Candidate {
    double log_probability;
    size_t beam;
    int64_t symbol;
  };

  [[nodiscard]] bool done() const { return live_.empty(); }
  [[nodiscard]] const WrittenText& best() const { return best_; }

  // log_probabilities: [beams, classes], rows of those that go on first. Where each of them comes from, and its symbol.
  std::vector<Candidate> advance(const double* log_probabilities, size_t classes) {
    std::vector<Candidate> candidates;
    for (size_t beam = 0; beam < live_.size(); ++beam)
      for (size_t symbol = 0; symbol < classes; ++symbol)
        candidates.push_back({live_[beam].log_probability + log_probabilities[beam * classes + symbol], beam,
                              static_cast<int64_t>(symbol)});
    const size_t kept = std::min(candidates.size(), static_cast<size_t>(options_.beams));
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept), candidates.end(),
                      [](const Candidate& a, const Candidate& b) {
                        if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
                        return a.beam != b.beam ? a.beam < b.beam : a.symbol < b.symbol;
                      });
    candidates.resize(kept);
    std::vector<WrittenText> live;
    std::vector<Candidate> going;
    for (const Candidate& candidate : candidates) {
      WrittenText text = live_[candidate.beam];
      text.classes.push_back(candidate.symbol);
      text.log_probability = candidate.log_probability;
      if (candidate.symbol == kEndClass || text.classes.size() == longest_) {
        set_aside(std::move(text));
        continue;
      }
      live.push_back(std::move(text));
      going.push_back(candidate);
    }
    // Nothing that goes on can become better than the best, were all that comes certain.
    const bool better = std::any_of(live.begin(), live.end(), [&](const WrittenText& text) {
      return penalised(text.log_probability, longest_, options_.length_penalty) > best_.score;
    });
    if (!better) live.clear(), going.clear();
    live_ = std::move(live);
    return going;
  }

 private:
  void set_aside(WrittenText text) {
    text.score = penalised(text.log_probability, text.classes.size(), options_.length_penalty);
    if (text.score > best_.score) best_ = std::move(text);
  }

  SearchOptions options_;
  size_t longest_;
  std::vector<WrittenText> live_;
  WrittenText best_{.score = -std::numeric_limits<double>::infinity()};
};

}  // namespace

std::vector<WrittenText> write_texts(WritingModel& model, const ModelInput& input, const SearchOptions& options,
                                     const std::function<void(const std::vector<int64_t>& classes)>& next) {
  XF_ASSERT(options.beams >= 1 && (!next || options.beams == 1), "{} beams", options.beams);
  const at::NoGradGuard no_grad;
  const int64_t sources = input.tokens.size(0), rows = sources * options.beams;
  const auto on_device = [&](const std::vector<int64_t>& values) {
    return at::tensor(values, at::kLong).to(input.tokens.device());
  };
  std::vector<Beams> searches(static_cast<size_t>(sources), {options, static_cast<size_t>(model.longest_text())});
  Writing writing = model.read(input);
  std::vector<int64_t> order, ids(static_cast<size_t>(rows), kMarkId);
  for (int64_t row = 0; row < rows; ++row) order.push_back(row / options.beams);
  if (options.beams > 1) writing.select(on_device(order));
  while (!std::all_of(searches.begin(), searches.end(), [](const Beams& one) { return one.done(); })) {
    const at::Tensor scores =
        model.decode(on_device(ids).unsqueeze(1), writing).to(at::kCPU, at::kDouble).log_softmax(-1).contiguous();
    const auto classes = static_cast<size_t>(scores.size(1));
    XF_CHECK(scores.isfinite().all().item<bool>(), DataError,
             "the model's scores are not finite: its weights are damaged, or its training diverged");
    bool moved = false;
    std::vector<int64_t> heard;
    for (size_t i = 0; i < searches.size(); ++i) {
      const size_t first = i * static_cast<size_t>(options.beams);
      heard.push_back(-1);
      if (searches[i].done()) continue;
      const auto going = searches[i].advance(scores.const_data_ptr<double>() + first * classes, classes);
      heard.back() = going.empty() ? searches[i].best().classes.back() : going.front().symbol;
      for (size_t beam = 0; beam < going.size(); ++beam) {
        order[first + beam] = static_cast<int64_t>(first + going[beam].beam);
        ids[first + beam] = going[beam].symbol + kEndId;
        moved = moved || going[beam].beam != beam;
      }
      // Rows without a text go on as they are, and are not looked at.
      for (size_t row = first + going.size(); row < first + static_cast<size_t>(options.beams); ++row)
        order[row] = static_cast<int64_t>(row);
    }
    if (next) next(heard);
    if (moved) writing.select(on_device(order));
  }
  std::vector<WrittenText> result;
  for (const Beams& search : searches) result.push_back(search.best());
  return result;
}

}  // namespace xformer::models
