// Sequences of tasks that ask for what stood earlier in them (tasks-more 16): ids, and at some places a label, the id
// that a model should answer there. All are functions of the numbers that are drawn.
#pragma once

#include "data/generated_source.h"

namespace xformer::data {

// Multi-query associative recall (Arora et al. 2023, "Zoology"): `pairs` keys of 1 .. v/2 - 1 and values of v/2 .. v -
// 1, all different, side by side in front; then every key comes once more, at an even distance, and its value is asked
// for there. A key's slot g is drawn without replacement with probability proportional to (g + 1)^(power - 1), in the
// order of the keys. What else stands there is 0, or with `random_fill` any id.
struct MqarOptions {
  int64_t length = 64, pairs = 4, vocabulary = 8192;
  double power = 0.01;
  bool random_fill = true;
};
class Mqar {
 public:
  explicit Mqar(const MqarOptions& options);
  void draw(Stream& numbers, ExampleBuffers& into) const;

 private:
  MqarOptions options_;
  std::vector<double> weights_;  // by slot
};

// Which places of a training sequence have a label: every one the id behind it, or the last alone.
enum class Asked { kEveryNext, kLast };

// Associative recall (Fu et al. 2022, "Hungry Hungry Hippos"; HazyResearch/safari): `length` / 2 pairs of a key, drawn
// with replacement of 0 .. h - 1 (h = v/2 - 1), and its value, of h .. 2h - 1 by a map drawn for the sequence; the
// prefix v - 1; a key that occurred. Its value is the last label. The id v - 2 is never used.
struct AssociativeOptions {
  int64_t length = 40, vocabulary = 20;
};
void draw_associative(const AssociativeOptions& options, Asked asked, Stream& numbers, ExampleBuffers& into);

// Induction heads (Olsson et al. 2022, as Fu et al. 2022 and Gu and Dao 2023 test them): symbols of 0 .. v - 2, the
// trigger v - 1 in place of one of the first length - 3 and at the end. The symbol behind the first is the last label.
struct InductionOptions {
  int64_t length = 256, vocabulary = 17;
};
void draw_induction(const InductionOptions& options, Asked asked, Stream& numbers, ExampleBuffers& into);

// Copying (Arjovsky et al. 2016), or selective copying where the `tokens` ids of 1 .. v - 2 stand at any of `length`
// places (Gu and Dao 2023) instead of in front; 0 at the others; as many markers v - 1 behind, whose labels are the
// tokens in their order.
struct CopyOptions {
  int64_t length = 4096, tokens = 16, vocabulary = 16;
  bool variable = true;
};
void draw_copy(const CopyOptions& options, Stream& numbers, ExampleBuffers& into);

// `count` different numbers below `below`, in the order in which they are drawn.
[[nodiscard]] std::vector<int64_t> draw_distinct(Stream& numbers, int64_t below, int64_t count);

}  // namespace xformer::data
