// Examples that are made when they are read: pure functions of (seed, split, index), so nothing is stored and any one
// can be made alone.
#pragma once

#include "core/random.h"
#include "data/source.h"

namespace xformer::data {

// Where an example is made; the example refers to it.
struct ExampleBuffers {
  std::array<std::vector<uint8_t>, 2> ids;
  std::vector<float> values;
  std::vector<uint16_t> wide_ids;
  std::vector<int32_t> labels;
  std::vector<float> answers;
};
// Of one sequence with a label at every place (place_target): the buffers' wide ids, as narrow as the vocabulary asks
// for, and labels.
[[nodiscard]] Example labelled_places(ExampleBuffers& buffers, int64_t vocabulary);

struct GeneratedExamples {
  std::string name;  // of the dataset, part of its identity
  int64_t version;   // raised when other examples come out of the same settings
  Json settings;     // all that decides the content
  uint64_t seed = 0;
  DataShape shape;
  std::array<int64_t, 3> sizes{};  // by Split
  // Draws from the stream of one example.
  std::function<Example(Stream& numbers, ExampleBuffers& into)> make;
  // The same for dev and test, where they are made in another way.
  std::function<Example(Stream& numbers, ExampleBuffers& into)> make_evaluated = {};
};

[[nodiscard]] std::unique_ptr<DataSource> generated_source(GeneratedExamples examples);

// Options of every such dataset.
struct GeneratedSizes {
  int64_t train_examples = 100000, dev_examples = 1000, test_examples = 1000, generator_seed = 0;
};
template <class Options>
Schema<Options> sizes_schema() {
  const auto own = [](int64_t GeneratedSizes::*field) { return static_cast<int64_t Options::*>(field); };
  return Schema<Options>()
      .add(own(&GeneratedSizes::train_examples), "train_examples", "generated training examples", between(1, 100e6))
      .add(own(&GeneratedSizes::dev_examples), "dev_examples", "generated dev examples", between(1, 100e6))
      .add(own(&GeneratedSizes::test_examples), "test_examples", "generated test examples", between(1, 100e6))
      .add(own(&GeneratedSizes::generator_seed), "generator_seed", "seed of the generator, apart from the run's seed",
           at_least(0));
}

// These tasks have no files: UserError for a folder.
void refuse_folder(const std::string& dataset, const DataLocation& location);

}  // namespace xformer::data
