// The adding problem (Hochreiter and Schmidhuber 1997) as Paramixer has it (Yu et al. 2022, supplement 1): N pairs
// (x, y), x uniform on (-1, 1], y 1 at two positions a < b and else 0; the target is 0.5 + (x_a + x_b) / 4.
#include "core/error.h"
#include "data/check.h"
#include "data/generated_source.h"
#include "data/two_positions.h"

namespace xformer::data::adapters::adding {
namespace {

constexpr double kTolerance = 0.04;

struct Options : GeneratedSizes {
  int64_t length = 128;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      sizes_schema<Options>().add(&Options::length, "length", "pairs in a sequence (N)", between(2, 1e6));
  return kSchema;
}

Options read_options(const Json& options) { return schema().read(options); }

DataShape shape_of(const Options& options) {
  DataShape shape;
  shape.max_len = options.length;
  shape.width = 2;
  shape.target = number_target(1, kTolerance);
  return shape;
}

std::unique_ptr<DataSource> open(const Json& given, const DataLocation& location, const ProgressCallback&) {
  refuse_folder("adding", location);
  const Options options = read_options(given);
  GeneratedExamples examples{"adding",
                             1,
                             schema().write(options),
                             static_cast<uint64_t>(options.generator_seed),
                             shape_of(options),
                             {options.train_examples, options.dev_examples, options.test_examples},
                             {}};
  examples.make = [length = options.length](Stream& numbers, ExampleBuffers& into) {
    into.values.assign(static_cast<size_t>(2 * length), 0);
    for (int64_t i = 0; i < length; ++i)
      into.values[static_cast<size_t>(2 * i)] = static_cast<float>(1 - 2 * numbers.next_unit());
    float sum = 0;
    for (const int64_t position : two_positions(numbers, length)) {
      sum += into.values[static_cast<size_t>(2 * position)];
      into.values[static_cast<size_t>(2 * position + 1)] = 1;
    }
    return Example{{}, into.values, 0, 0.5F + sum / 4};
  };
  return generated_source(std::move(examples));
}

CheckReport check(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const auto source = open(given, location, progress);
  CheckReport report;
  check_generated(*source, report, progress, [](const Example& example) -> std::string {
    int64_t marks = 0;
    float sum = 0;
    for (size_t i = 0; i < example.values.size(); i += 2) {
      marks += example.values[i + 1] != 0 ? 1 : 0;
      sum += example.values[i + 1] * example.values[i];
    }
    if (marks != 2) return fmt::format("{} marked numbers, expected 2", marks);
    const float target = 0.5F + sum / 4;
    return std::abs(target - example.target) < 1e-6F ? ""
                                                     : fmt::format("target {}, expected {}", example.target, target);
  });
  return report;
}

std::string show(const Example& example, const DataInfo&) {
  std::string marked;
  for (size_t i = 0; i < example.values.size(); i += 2)
    if (example.values[i + 1] != 0) marked += fmt::format(" x[{}] = {:.4f}", i / 2, example.values[i]);
  return fmt::format("{} numbers, marked{}\ntarget {:.4f}", example.values.size() / 2, marked, example.target);
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor adding;
  adding.name = "adding";
  adding.title = "adding problem: the sum of two marked numbers";
  adding.paper = "Hochreiter and Schmidhuber 1997, as in Yu et al., Paramixer, 2022";
  adding.source = "generated";
  adding.options = schema().options();
  adding.accepts_length = true;
  adding.generated = true;
  adding.shape = [](const Json& options) { return shape_of(read_options(options)); };
  adding.open = open;
  adding.check = check;
  adding.show = show;
  return {adding};
}

}  // namespace xformer::data::adapters::adding
