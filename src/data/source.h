// What every dataset looks like to the rest of the program: splits of examples that are pure functions
// of their index. Order, batching and shuffling belong to the batcher; nothing here knows LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/progress_callback.h"
#include "core/random.h"
#include "core/schema.h"
#include "data/target.h"
#include "readers/png.h"

namespace xformer::data {

enum class Split { kTrain = 0, kDev = 1, kTest = 2 };
inline constexpr std::array<Split, 3> kAllSplits{Split::kTrain, Split::kDev, Split::kTest};
[[nodiscard]] std::string split_name(Split split);         // "train", "dev", "test"
[[nodiscard]] Split parse_split(const std::string& name);  // UserError with the nearest name; "val" is dev

// What a model and a task must know of every example of a dataset.
struct DataShape {
  int64_t max_len = 0;          // the longest sequence, before any padding (N_max)
  int64_t vocabulary = 0;       // ids in use, padding included; 0: places hold numbers instead
  int64_t id_offset = 0;        // the id of a stored byte 0
  bool zero_is_padding = true;  // a place with id 0 is no token, wherever it stands
  bool masks = false;           // the last id stands for whatever is hidden behind it, and for none of its own
  int64_t sequences = 1;        // of ids in an example: 2 for pairs of documents
  int64_t width = 0;            // numbers at each place
  int64_t side = 0;             // of a square image whose places are its pixels or their colours, row by row; 0: none
  int64_t channels = 1;         // of that image
  Fields further = {};          // fields of an input beside its ids or its numbers
  // Sizes of columns of codes: the last places of a table's row; where the width is above 1 the last numbers of each
  // place, an event, whose codes are above 0.
  std::vector<int64_t> categories = {};
  TargetSpec target = {};

  bool operator==(const DataShape&) const = default;
};

// Places in a row of the image: more than its side where every colour of a pixel has a place of its own. 0: no image.
[[nodiscard]] int64_t image_columns(const DataShape& shape);

// Of the input: `tokens` (ids) or `values` (numbers) first, then further ones. A field with places has them in every
// sequence, as many in each field.
[[nodiscard]] Fields input_fields(const DataShape& shape);
// Those, then the target's.
[[nodiscard]] Fields fields_of(const DataShape& shape);

// One example.
struct Example {
  std::array<Elements, 2> ids = {};    // `tokens`, by sequence
  std::span<const float> values = {};  // `values`, [length, width]
  int64_t label = 0;
  float target = 0;
  std::vector<Elements> further = {};  // further stored fields with places, in their order, each by sequence
  std::vector<double> facts = {};      // and without, in theirs
  std::string_view name = {};          // of its file, where it has one of its own: packed, and asked for by DataSource
};
// Of its longest sequence.
[[nodiscard]] int64_t example_length(const Example& example, const DataShape& shape);

// One sequence of a stored field, or the field where it has no places; found once, for all examples of a shape.
class Part {
 public:
  size_t place = 0;  // of the field in fields_of
  Field field;
  int64_t sequence = 0;

  [[nodiscard]] Elements elements(const Example& example) const;  // of a field with places
  [[nodiscard]] double fact(const Example& example) const;        // of one without
  void set_elements(Example& example, const Elements& elements) const;
  void set_fact(Example& example, double fact) const;

 private:
  friend std::vector<Part> parts_of(const DataShape& shape);
  enum class Member { kIds, kValues, kLabel, kTarget, kFurther, kFacts } member_ = Member::kIds;
  size_t at_ = 0;  // in that member
};
// First those without places, then the others by sequence.
[[nodiscard]] std::vector<Part> parts_of(const DataShape& shape);

struct Dropped {
  Split split;
  std::string reason;
  int64_t count = 0;
};

// What a record states about the data of a run.
struct DataInfo {
  std::string sha256;              // of the packed content: equal content, equal hash, wherever it lies
  std::string origin;              // "generated" or "files"
  std::array<int64_t, 3> sizes{};  // by Split; 0 when the split is absent
  std::vector<Dropped> dropped;
  DataShape shape;
  Json details = Json::object();  // adapter's own facts: raw file hashes, generator settings, vocabulary hash
  // Whether the data has no dev split of its own, and the test split stands for it.
  [[nodiscard]] bool dev_is_test() const { return details.is_object() && details.value("dev", "") == "test"; }
};

class HostBatch;

class DataSource {
 public:
  virtual ~DataSource() = default;
  [[nodiscard]] virtual int64_t size(Split split) const = 0;
  // Thread-safe; valid until the same thread reads again.
  [[nodiscard]] virtual Example read(Split split, int64_t index) const = 0;
  [[nodiscard]] virtual const DataInfo& info() const = 0;
  // The file of an example that has one of its own, below the data's folder; "".
  [[nodiscard]] virtual std::string name(Split split, int64_t index) const {
    static_cast<void>(split), static_cast<void>(index);
    return "";
  }
  // Whether reading is so much work that a batch's examples are worth several threads.
  [[nodiscard]] virtual bool slow() const { return false; }
  // Augmentation: the example as `numbers` decide, which are the training seed's for this epoch and example; and then a
  // batch's examples with each other, as those of the batch decide.
  [[nodiscard]] virtual Example augmented(Split split, int64_t index, Stream& numbers) const {
    (void)numbers;
    return read(split, index);
  }
  virtual void mix(HostBatch& batch, Stream& numbers) const { (void)batch, (void)numbers; }
  // An example as a person would look at it, where that takes more than info() says; "": as the descriptor shows it.
  [[nodiscard]] virtual std::string shown(const Example& example) const {
    static_cast<void>(example);
    return "";
  }
};

// Where a dataset is looked for and kept.
struct DataLocation {
  Path folder;  // --data, or $XFORMER_DATA/<dataset>; empty: the dataset's generator, if it has one
  Path cache = cache_folder();
  bool require_all_splits = true;  // training needs train, dev and test; eval and data check take what there is
};

// DataError where `folder` is given and neither a folder nor a plain file.
void check_place(const Path& folder);

// DataError where neither --data nor $XFORMER_DATA says where the files are; `expected` names them.
void require_folder(const std::string& dataset, const std::string& expected, const DataLocation& location);

struct CheckReport;

// What data/adapters/<name>.cpp says about itself; the registry collects these.
struct DatasetDescriptor {
  std::string name;
  std::vector<std::string> aliases;
  std::string title, paper;
  std::string source;  // where its files come from
  std::string default_family = "encoder";
  std::vector<OptionInfo> options;             // without the prefix "data."
  std::vector<std::string> generator_options;  // those of `options` that only the generator reads: refused with --data
  bool accepts_length = false;                 // --length sets data.length
  bool generated = false;                      // needs no files
  double masked_share = 0.15;                  // of its ids that data.objective=masked hides
  bool shape_is_likely = false;                // only the files say what the shape is: DataInfo has it, `shape` a guess
  // Under these data options.
  std::function<DataShape(const Json& options)> shape;
  // Of an entry that stands for any number of sets, `uea/<name>`: the descriptor of one.
  std::function<DatasetDescriptor(const std::string& name)> member = {};
  // Refuses options that no data can meet, when the plan is made (UserError).
  std::function<void(const Json& options)> check_options = [](const Json&) {};
  // Refuses settings that the generator cannot meet, before anything is written (UserError).
  std::function<void(const Json& options)> check_generator = [](const Json&) {};
  // Opens (making or packing into the cache on first use) the data under these options.
  std::function<std::unique_ptr<DataSource>(const Json& options, const DataLocation&, const ProgressCallback&)> open;
  // Reads everything and says what is right, odd or wrong (data/check.h).
  std::function<CheckReport(const Json& options, const DataLocation&, const ProgressCallback&)> check;
  // An example as a person would look at it.
  std::function<std::string(const Example&, const DataInfo&)> show;
  // Of a task of images: the example as one.
  std::function<readers::Image(const Example&, const DataInfo&)> picture = {};
};

}  // namespace xformer::data
