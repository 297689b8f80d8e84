// Furthest vectors (Zaheer et al., "Big Bird: Transformers for Longer Sequences", NeurIPS 2020, section 3.4, Task 1;
// tasks-more 18): n unit vectors, drawn evenly over the sphere; at every place the one of them that lies furthest from
// the place's own.
//
// One layer of full attention solves it: with queries -c u, keys u and values u its answer tends to the vector of the
// least product as c grows, which among unit vectors is the furthest. With any attention of n edges up to logarithms
// that takes of the order of n layers, if the orthogonal vectors conjecture holds (Proposition 1).
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "data/check.h"
#include "data/generated_source.h"
#include "data/two_positions.h"

namespace xformer::data::adapters::furthest_vector {
namespace {

struct Options : GeneratedSizes {
  int64_t length = 64, width = 4;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      sizes_schema<Options>()
          .add(&Options::length, "length", "vectors of a sequence (N)", between(2, 1e6))
          .add(&Options::width, "width", "numbers of a vector: of more, distances differ less", between(2, 1024));
  return kSchema;
}

DataShape shape_of(const Options& options) {
  DataShape shape;
  shape.max_len = options.length;
  shape.width = options.width;
  // One of the sequence's vectors at every place (tasks/kinds/place_vector.cpp).
  shape.target = {"place-vector",
                  fmt::format("vector of places, {} numbers", options.width),
                  {{.name = "answer", .element = Element::kF32, .axes = Axes::kTokenByK, .k = options.width}}};
  return shape;
}

std::span<const float> vector_at(std::span<const float> values, size_t place, size_t width) {
  return values.subspan(place * width, width);
}

double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

// The place of the vector furthest from that at `place`; of equally far ones the first.
size_t furthest_from(std::span<const float> values, size_t place, size_t width) {
  size_t furthest = 0;
  double most = -1;
  for (size_t other = 0; other < values.size() / width; ++other)
    if (const double distance = squared_distance(vector_at(values, place, width), vector_at(values, other, width));
        distance > most) {
      furthest = other;
      most = distance;
    }
  return furthest;
}

// Independent normal numbers point everywhere equally often (Muller 1959).
void draw_unit_vectors(Stream& numbers, size_t width, std::vector<float>& values) {
  for (size_t first = 0; first < values.size(); first += width) {
    double squares = 0;
    while (squares < 1e-12) {
      squares = 0;
      for (size_t i = first; i < first + width; ++i) {
        const double radius = std::sqrt(-2 * std::log1p(-numbers.next_unit()));
        const double normal = radius * std::cos(2 * std::numbers::pi * numbers.next_unit());
        values[i] = static_cast<float>(normal);
        squares += normal * normal;
      }
    }
    for (size_t i = first; i < first + width; ++i) values[i] = static_cast<float>(values[i] / std::sqrt(squares));
  }
}

std::unique_ptr<DataSource> open(const Json& given, const DataLocation& location, const ProgressCallback&) {
  refuse_folder("furthest-vector", location);
  const Options options = schema().read(given);
  GeneratedExamples examples{"furthest-vector",
                             1,
                             schema().write(options),
                             static_cast<uint64_t>(options.generator_seed),
                             shape_of(options),
                             {options.train_examples, options.dev_examples, options.test_examples},
                             {}};
  examples.make = [length = static_cast<size_t>(options.length), width = static_cast<size_t>(options.width)](
                      Stream& numbers, ExampleBuffers& into) {
    into.values.resize(length * width);
    draw_unit_vectors(numbers, width, into.values);
    into.answers.clear();
    for (size_t place = 0; place < length; ++place) {
      const std::span<const float> answer = vector_at(into.values, furthest_from(into.values, place, width), width);
      into.answers.insert(into.answers.end(), answer.begin(), answer.end());
    }
    Example example;
    example.values = into.values;
    example.further.emplace_back(into.answers);
    return example;
  };
  return generated_source(std::move(examples));
}

CheckReport check(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const auto source = open(given, location, progress);
  CheckReport report;
  check_generated(*source, report, progress, [&](const Example& example) -> std::string {
    const auto width = static_cast<size_t>(source->info().shape.width);
    const std::span<const float> answers = example.further[0];
    const std::vector<float> origin(width, 0);
    for (size_t place = 0; place < example.values.size() / width; ++place) {
      const double length = squared_distance(vector_at(example.values, place, width), origin);
      if (std::abs(length - 1) > 1e-5)
        return fmt::format("the vector at place {} is {:.6f} long", place, std::sqrt(length));
      const size_t furthest = furthest_from(example.values, place, width);
      if (squared_distance(vector_at(answers, place, width), vector_at(example.values, furthest, width)) > 0)
        return fmt::format("the answer at place {} is not the vector at {}", place, furthest);
    }
    return "";
  });
  return report;
}

std::string show(const Example& example, const DataInfo& info) {
  constexpr size_t kShown = 8;
  const auto width = static_cast<size_t>(info.shape.width);
  const size_t length = example.values.size() / width, shown = std::min(length, kShown);
  std::string text;
  for (size_t place = 0; place < shown; ++place) {
    const size_t furthest = furthest_from(example.values, place, width);
    const std::span<const float> own = vector_at(example.values, place, width);
    text += fmt::format("place {}: ({:.3f}), furthest {}, {:.3f} away\n", place, fmt::join(own, ", "), furthest,
                        std::sqrt(squared_distance(own, vector_at(example.values, furthest, width))));
  }
  return fmt::format("{}{} vectors of {} numbers", text, length, width);
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor furthest;
  furthest.name = "furthest-vector";
  furthest.title = "furthest vectors: of all, from each place's own";
  furthest.paper = "Zaheer et al., Big Bird: Transformers for Longer Sequences, 2020";
  furthest.source = "generated";
  furthest.default_family = "token-encoder";
  furthest.options = schema().options();
  furthest.accepts_length = true;
  furthest.generated = true;
  furthest.shape = [](const Json& options) { return shape_of(schema().read(options)); };
  furthest.open = open;
  furthest.check = check;
  furthest.show = show;
  return {furthest};
}

}  // namespace xformer::data::adapters::furthest_vector
