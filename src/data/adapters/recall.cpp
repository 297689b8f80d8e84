// Recall: generated sequences in which a model is asked for what stood earlier (tasks-more 16): mqar,
// associative-recall, induction, selective-copy. Accuracy is over the places that are asked for.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "data/check.h"
#include "data/recall/recall_sequences.h"
#include "data/two_positions.h"

namespace xformer::data::adapters::recall {
namespace {

// What the four descriptors share; a task says how a sequence is drawn, and what must be true of one.
struct RecallTask {
  std::string name, title, paper;
  std::vector<OptionInfo> options;
  std::function<GeneratedExamples(const Json& options)> examples;
  std::function<void(const Json& options)> check_options;
  // What of an example's labels does not follow from its ids; "" for nothing.
  std::function<std::string(const Json& options, const std::vector<int64_t>& ids, const std::vector<int64_t>& labels)>
      fault;
};

DataShape shape_of(int64_t length, int64_t vocabulary) {
  DataShape shape;
  shape.max_len = length;
  shape.vocabulary = vocabulary;
  shape.zero_is_padding = false;
  shape.target = place_target(vocabulary);
  return shape;
}

using Draw = std::function<void(Stream& numbers, ExampleBuffers& into)>;

GeneratedExamples generated(const std::string& name, const Json& settings, const GeneratedSizes& sizes,
                            const DataShape& shape, const Draw& draw, const Draw& draw_evaluated = {}) {
  GeneratedExamples examples{name,     1,
                             settings, static_cast<uint64_t>(sizes.generator_seed),
                             shape,    {sizes.train_examples, sizes.dev_examples, sizes.test_examples},
                             {}};
  const auto made_by = [vocabulary = shape.vocabulary](const Draw& drawn) {
    return [vocabulary, drawn](Stream& numbers, ExampleBuffers& into) {
      drawn(numbers, into);
      return labelled_places(into, vocabulary);
    };
  };
  examples.make = made_by(draw);
  if (draw_evaluated) examples.make_evaluated = made_by(draw_evaluated);
  return examples;
}

// "" where every place has the id behind it as its label, or none has but the last, whose label is `meant`.
std::string fault_in_the_end(const std::vector<int64_t>& ids, const std::vector<int64_t>& labels, int64_t meant) {
  for (size_t i = 0; i + 1 < ids.size(); ++i)
    if (labels[i] != kNoLabel && labels[i] != ids[i + 1])
      return fmt::format("label {} at place {}, in front of {}", labels[i], i, ids[i + 1]);
  return labels.back() == meant ? "" : fmt::format("label {} in the end, expected {}", labels.back(), meant);
}

struct Mqars : GeneratedSizes, MqarOptions {
  Mqars() { dev_examples = test_examples = 3000; }
};

template <class Options>
Schema<Options> schema_with_length(const std::string& help, Rule rule, int64_t Options::*length) {
  return sizes_schema<Options>().add(length, "length", help, std::move(rule));
}

RecallTask mqar() {
  static const Schema<Mqars> kSchema =
      schema_with_length<Mqars>("tokens of a sequence (N), an even number", between(4, 1e6), &Mqars::length)
          .add<int64_t>(&Mqars::pairs, "pairs", "keys with their values; at most a quarter of the length", at_least(1))
          .add<int64_t>(&Mqars::vocabulary, "vocabulary", "ids: the first half keys, the second values",
                        between(4, 65536))
          .add<double>(&Mqars::power, "power", "keys come back after g slots with weight (g + 1)^(power - 1)",
                       between(0, 10))
          .add<bool>(&Mqars::random_fill, "random_fill", "places where nothing is asked hold any id; false: id 0");
  RecallTask task;
  task.name = "mqar";
  task.title = "multi-query associative recall: the values of keys, asked once each";
  task.paper =
      "Arora, Eyuboglu, Timalsina, Johnson, Poli, Zou, Rudra, Ré: Zoology: Measuring and Improving Recall in "
      "Efficient Language Models, 2023";
  task.options = kSchema.options();
  task.examples = [](const Json& given) {
    const Mqars options = kSchema.read(given);
    return generated("mqar", kSchema.write(options), options, shape_of(options.length, options.vocabulary),
                     [drawer = Mqar(options)](Stream& numbers, ExampleBuffers& into) { drawer.draw(numbers, into); });
  };
  task.check_options = [](const Json& given) {
    const Mqars options = kSchema.read(given);
    XF_CHECK(options.length % 2 == 0 && 4 * options.pairs <= options.length, UserError,
             "data.pairs: every key comes twice with a place behind it; expected at most a quarter of an even "
             "data.length, got {} of {}",
             options.pairs, options.length);
    XF_CHECK(options.pairs < options.vocabulary / 2, UserError,
             "data.vocabulary: {} keys that differ need more than {} ids, got {}", options.pairs, 2 * options.pairs,
             options.vocabulary);
  };
  task.fault = [](const Json& given, const std::vector<int64_t>& ids, const std::vector<int64_t>& labels) {
    const auto pairs = static_cast<size_t>(kSchema.read(given).pairs);
    std::map<int64_t, int64_t> value_of;
    for (size_t i = 0; i < pairs; ++i) value_of[ids[2 * i]] = ids[2 * i + 1];
    if (value_of.size() != pairs) return fmt::format("{} different keys, expected {}", value_of.size(), pairs);
    size_t asked = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (labels[i] == kNoLabel) continue;
      ++asked;
      if (i < 2 * pairs || !value_of.contains(ids[i]) || value_of[ids[i]] != labels[i])
        return fmt::format("label {} at place {}, which holds {}", labels[i], i, ids[i]);
      value_of.erase(ids[i]);
    }
    return asked == pairs ? std::string() : fmt::format("{} values are asked for, expected {}", asked, pairs);
  };
  return task;
}

// Of the two tasks with an answer in the end.
struct Ending : GeneratedSizes {
  int64_t length = 0, vocabulary = 0;
  std::string train_labels = "every-next";
};
struct Associatives : Ending {
  Associatives() { length = 40, vocabulary = 20, train_examples = 5000, dev_examples = test_examples = 500; }
};
struct Inductions : Ending {
  Inductions() { length = 256, vocabulary = 17; }
};

template <class Options>
const Schema<Options>& ending_schema(const char* length_help, double least_vocabulary) {
  static const Schema<Options> kSchema =
      sizes_schema<Options>()
          .template add<int64_t>(&Options::length, "length", length_help, between(4, 1e6))
          .template add<int64_t>(&Options::vocabulary, "vocabulary", "ids, special ones included",
                                 between(least_vocabulary, 65536))
          .template add<std::string>(&Options::train_labels, "train_labels",
                                     "training sequences are asked for every next id, or for the last alone; dev and "
                                     "test for the last",
                                     one_of({"every-next", "last"}));
  return kSchema;
}

template <class Options, class DrawEnding>
GeneratedExamples ending_examples(const std::string& name, const Schema<Options>& schema, const Json& given,
                                  int64_t more, const DrawEnding& draw) {
  const Options options = schema.read(given);
  const Asked train = options.train_labels == "last" ? Asked::kLast : Asked::kEveryNext;
  const auto drawn = [options, draw](Asked asked) {
    return [options, draw, asked](Stream& numbers, ExampleBuffers& into) { draw(options, asked, numbers, into); };
  };
  return generated(name, schema.write(options), options, shape_of(options.length + more, options.vocabulary),
                   drawn(train), drawn(Asked::kLast));
}

RecallTask associative() {
  const auto& schema = ending_schema<Associatives>("tokens of the pairs, an even number; two more ask", 6);
  RecallTask task;
  task.name = "associative-recall";
  task.title = "associative recall: the value of a key that stood earlier";
  task.paper =
      "Fu, Dao, Saab, Thomas, Rudra, Ré: Hungry Hungry Hippos: Towards Language Modeling with State Space "
      "Models, 2022";
  task.options = schema.options();
  task.examples = [&schema](const Json& given) {
    return ending_examples("associative-recall", schema, given, 2,
                           [](const Associatives& options, Asked asked, Stream& numbers, ExampleBuffers& into) {
                             draw_associative({options.length, options.vocabulary}, asked, numbers, into);
                           });
  };
  task.check_options = [&schema](const Json& given) {
    const Associatives options = schema.read(given);
    XF_CHECK(options.length % 2 == 0, UserError, "data.length: pairs are two tokens; expected an even number, got {}",
             options.length);
  };
  task.fault = [](const Json&, const std::vector<int64_t>& ids, const std::vector<int64_t>& labels) -> std::string {
    std::map<int64_t, int64_t> value_of;
    for (size_t i = 0; i + 2 < ids.size(); i += 2) value_of[ids[i]] = ids[i + 1];
    if (!value_of.contains(ids.back())) return fmt::format("the key {} did not occur", ids.back());
    return fault_in_the_end(ids, labels, value_of[ids.back()]);
  };
  return task;
}

RecallTask induction() {
  const auto& schema = ending_schema<Inductions>("tokens of a sequence (N), the last trigger included", 3);
  RecallTask task;
  task.name = "induction";
  task.title = "induction heads: what stood behind a trigger that comes again";
  task.paper = "Gu, Dao: Mamba: Linear-Time Sequence Modeling with Selective State Spaces, 2023";
  task.options = schema.options();
  task.examples = [&schema](const Json& given) {
    return ending_examples("induction", schema, given, 0,
                           [](const Inductions& options, Asked asked, Stream& numbers, ExampleBuffers& into) {
                             draw_induction({options.length, options.vocabulary}, asked, numbers, into);
                           });
  };
  task.check_options = [](const Json&) {};
  task.fault = [](const Json&, const std::vector<int64_t>& ids, const std::vector<int64_t>& labels) -> std::string {
    const auto first = static_cast<size_t>(std::find(ids.begin(), ids.end(), ids.back()) - ids.begin());
    if (first + 2 >= ids.size()) return "the trigger stands in the end alone";
    return fault_in_the_end(ids, labels, ids[first + 1]);
  };
  return task;
}

struct Copies : GeneratedSizes, CopyOptions {};

RecallTask copy() {
  static const Schema<Copies> kSchema =
      schema_with_length<Copies>("places among which the tokens stand; as many markers as tokens follow",
                                 between(1, 1e6), &Copies::length)
          .add<int64_t>(&Copies::tokens, "tokens", "tokens to be copied", at_least(1))
          .add<int64_t>(&Copies::vocabulary, "vocabulary", "ids: 0 between the tokens, the last the marker",
                        between(3, 65536))
          .add<bool>(&Copies::variable, "variable", "tokens at any places; false: in front, which is plain copying");
  RecallTask task;
  task.name = "selective-copy";
  task.title = "selective copying: tokens among noise, in their order";
  task.paper = "Gu, Dao: Mamba: Linear-Time Sequence Modeling with Selective State Spaces, 2023";
  task.options = kSchema.options();
  task.examples = [](const Json& given) {
    const Copies options = kSchema.read(given);
    return generated("selective-copy", kSchema.write(options), options,
                     shape_of(options.length + options.tokens, options.vocabulary),
                     [options](Stream& numbers, ExampleBuffers& into) { draw_copy(options, numbers, into); });
  };
  task.check_options = [](const Json& given) {
    const Copies options = kSchema.read(given);
    XF_CHECK(options.tokens <= options.length, UserError,
             "data.tokens: expected at most one for each of the {} places, got {}", options.length, options.tokens);
  };
  task.fault = [](const Json& given, const std::vector<int64_t>& ids, const std::vector<int64_t>& labels) {
    const auto length = static_cast<size_t>(kSchema.read(given).length);
    size_t at = length;
    for (size_t i = 0; i < length; ++i) {
      if (labels[i] != kNoLabel) return fmt::format("a label at place {}, in front of the markers", i);
      if (ids[i] != 0 && (at == ids.size() || labels[at++] != ids[i]))
        return fmt::format("token {} at place {} is not asked for in its turn", ids[i], i);
    }
    return at == ids.size() ? std::string() : fmt::format("{} markers for {} tokens", ids.size() - length, at - length);
  };
  return task;
}

std::vector<int64_t> whole(const Elements& elements) {
  std::vector<int64_t> result;
  elements.visit([&](const auto& values) {
    for (const auto value : values) result.push_back(static_cast<int64_t>(value));
  });
  return result;
}

std::string show(const Example& example, const DataInfo&) {
  const std::vector<int64_t> ids = whole(example.ids[0]), labels = whole(example.further[0]);
  std::string asked;
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != kNoLabel) asked += fmt::format(" {}:{}", i, labels[i]);
  return fmt::format("{}\nlength {}, place:answer{}", fmt::join(ids, " "), ids.size(), asked);
}

DatasetDescriptor descriptor(const RecallTask& task) {
  DatasetDescriptor result;
  result.name = task.name;
  result.title = task.title;
  result.paper = task.paper;
  result.source = "generated";
  result.default_family = "decoder";
  result.options = task.options;
  result.accepts_length = true;
  result.generated = true;
  result.shape = [task](const Json& options) { return task.examples(options).shape; };
  result.check_options = task.check_options;
  result.open = [task](const Json& options, const DataLocation& location, const ProgressCallback&) {
    refuse_folder(task.name, location);
    task.check_options(options);
    return generated_source(task.examples(options));
  };
  result.check = [task](const Json& options, const DataLocation& location, const ProgressCallback& progress) {
    refuse_folder(task.name, location);
    CheckReport report;
    check_generated(*generated_source(task.examples(options)), report, progress, [&](const Example& example) {
      return task.fault(options, whole(example.ids[0]), whole(example.further[0]));
    });
    return report;
  };
  result.show = show;
  return result;
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  return {descriptor(mqar()), descriptor(associative()), descriptor(induction()), descriptor(copy())};
}

}  // namespace xformer::data::adapters::recall
