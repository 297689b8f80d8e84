// The text that a model writes: the likeliest that beam search finds (Lowerre, "The Harpy Speech Recognition System",
// 1976; for neural models Sutskever et al., NeurIPS 2014).
//
// At each place the so many likeliest continuations of all texts that go on are kept; those that end are set aside, and
// so are, at the longest text, the others. Of what was set aside the best is taken, by the sum of log-probabilities
// over ((5 + symbols) / 6)^length_penalty (Wu et al., "Google's Neural Machine Translation System", 2016, equation 14,
// the end among the symbols). One beam is the greedy text: always the likeliest symbol. Of equals the first is taken,
// by beam and then by class.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace xformer::models {

class WritingModel;
struct ModelInput;

struct SearchOptions {
  int64_t beams = 1;
  double length_penalty = 0;  // 0: the text of the largest probability, however short
};

struct WrittenText {
  std::vector<int64_t> classes = {};  // the end included where it was written
  double log_probability = 0, score = 0;
};

// One text for each source. `next`, of one beam, hears of the symbols of each text as they are written, -1 behind the
// end. DataError for scores that are not finite.
[[nodiscard]] std::vector<WrittenText> write_texts(
    WritingModel& model, const ModelInput& input, const SearchOptions& options,
    const std::function<void(const std::vector<int64_t>& classes)>& next = {});

}  // namespace xformer::models
