// Temporal order (Hochreiter and Schmidhuber 1997) as Paramixer has it (Yu et al. 2022, supplement 1): among N symbols
// of four that say nothing stand two of X and Y; the class is their order: XX, XY, YX or YY.
#include "core/error.h"
#include "data/check.h"
#include "data/generated_source.h"
#include "data/two_positions.h"

namespace xformer::data::adapters::temporal_order {
namespace {

constexpr uint8_t kX = 4, kY = 5;  // 0 to 3 say nothing

struct Options : GeneratedSizes {
  int64_t length = 128;
};

const Schema<Options>& schema() {
  static const Schema<Options> kSchema =
      sizes_schema<Options>().add(&Options::length, "length", "symbols in a sequence (N)", between(2, 1e6));
  return kSchema;
}

Options read_options(const Json& options) { return schema().read(options); }

DataShape shape_of(const Options& options) {
  DataShape shape;
  shape.max_len = options.length;
  shape.vocabulary = 6;
  shape.zero_is_padding = false;
  shape.target = class_target(4);
  return shape;
}

std::unique_ptr<DataSource> open(const Json& given, const DataLocation& location, const ProgressCallback&) {
  refuse_folder("temporal-order", location);
  const Options options = read_options(given);
  GeneratedExamples examples{"temporal-order",
                             1,
                             schema().write(options),
                             static_cast<uint64_t>(options.generator_seed),
                             shape_of(options),
                             {options.train_examples, options.dev_examples, options.test_examples},
                             {}};
  examples.make = [length = options.length](Stream& numbers, ExampleBuffers& into) {
    std::vector<uint8_t>& ids = into.ids[0];
    ids.resize(static_cast<size_t>(length));
    for (uint8_t& id : ids) id = static_cast<uint8_t>(numbers.next_below(4));
    int64_t label = 0;
    for (const int64_t position : two_positions(numbers, length)) {
      const bool second = numbers.next_below(2) == 1;
      ids[static_cast<size_t>(position)] = second ? kY : kX;
      label = 2 * label + (second ? 1 : 0);
    }
    return Example{{ids}, {}, label};
  };
  return generated_source(std::move(examples));
}

// The class that the symbols say, or -1.
int64_t class_of(std::span<const uint8_t> ids) {
  int64_t label = 0, found = 0;
  for (const uint8_t id : ids) {
    if (id < kX) continue;
    label = 2 * label + (id == kY ? 1 : 0);
    ++found;
  }
  return found == 2 ? label : -1;
}

CheckReport check(const Json& given, const DataLocation& location, const ProgressCallback& progress) {
  const auto source = open(given, location, progress);
  CheckReport report;
  check_generated(*source, report, progress, [](const Example& example) -> std::string {
    const int64_t meant = class_of(example.ids[0]);
    return meant == example.label ? "" : fmt::format("class {}, expected {}", example.label, meant);
  });
  return report;
}

std::string show(const Example& example, const DataInfo&) {
  std::string text;
  for (const uint8_t id : example.ids[0].as<uint8_t>()) text += "abcdXY"[id];
  return fmt::format("{}\nlength {}, label {} ({})", text, text.size(), example.label,
                     std::array{"XX", "XY", "YX", "YY"}.at(static_cast<size_t>(example.label)));
}

}  // namespace

std::vector<DatasetDescriptor> describe() {
  DatasetDescriptor order;
  order.name = "temporal-order";
  order.title = "temporal order: which of two symbols came first";
  order.paper = "Hochreiter and Schmidhuber 1997, as in Yu et al., Paramixer, 2022";
  order.source = "generated";
  order.options = schema().options();
  order.accepts_length = true;
  order.generated = true;
  order.shape = [](const Json& options) { return shape_of(read_options(options)); };
  order.open = open;
  order.check = check;
  order.show = show;
  return {order};
}

}  // namespace xformer::data::adapters::temporal_order
