#include "data/generated_source.h"

#include "core/error.h"
#include "core/hash.h"

namespace xformer::data {

namespace {

class GeneratedSource : public DataSource {
 public:
  explicit GeneratedSource(GeneratedExamples examples) : examples_(std::move(examples)) {
    for (const Split split : kAllSplits)
      seeds_[static_cast<size_t>(split)] =
          derive_seed(examples_.seed, examples_.name + "/examples/" + split_name(split));
    info_.origin = "generated";
    info_.sizes = examples_.sizes;
    info_.shape = examples_.shape;
    info_.details = {{"generator", examples_.settings}};
    // Equal settings are equal content.
    info_.sha256 = sha256(
        Json{{"dataset", examples_.name}, {"version", examples_.version}, {"settings", examples_.settings}}.dump());
  }
  [[nodiscard]] int64_t size(Split split) const override { return examples_.sizes[static_cast<size_t>(split)]; }
  [[nodiscard]] Example read(Split split, int64_t index) const override {
    XF_ASSERT(index >= 0 && index < size(split), "example {} of {}", index, size(split));
    static thread_local ExampleBuffers buffers;
    Stream numbers(seeds_[static_cast<size_t>(split)], static_cast<uint64_t>(index));
    const bool other = split != Split::kTrain && examples_.make_evaluated;
    return (other ? examples_.make_evaluated : examples_.make)(numbers, buffers);
  }
  [[nodiscard]] const DataInfo& info() const override { return info_; }

 private:
  GeneratedExamples examples_;
  std::array<uint64_t, 3> seeds_{};
  DataInfo info_;
};

}  // namespace

std::unique_ptr<DataSource> generated_source(GeneratedExamples examples) {
  return std::make_unique<GeneratedSource>(std::move(examples));
}

Example labelled_places(ExampleBuffers& buffers, int64_t vocabulary) {
  Example example;
  example.ids[0] = buffers.wide_ids;
  if (narrowest(vocabulary) == Element::kU8) {
    buffers.ids[0].assign(buffers.wide_ids.begin(), buffers.wide_ids.end());
    example.ids[0] = buffers.ids[0];
  }
  example.further.emplace_back(buffers.labels);
  return example;
}

void refuse_folder(const std::string& dataset, const DataLocation& location) {
  XF_CHECK(location.folder.empty(), UserError, "{} is generated and has no files, but the data folder {} is given",
           dataset, location.folder.string());
}

}  // namespace xformer::data
