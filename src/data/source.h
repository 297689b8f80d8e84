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
#include "core/progress.h"
#include "core/schema.h"

namespace xformer::data {

enum class Split { kTrain = 0, kDev = 1, kTest = 2 };
inline constexpr std::array<Split, 3> kAllSplits{Split::kTrain, Split::kDev, Split::kTest};
[[nodiscard]] std::string split_name(Split split);         // "train", "dev", "test"
[[nodiscard]] Split parse_split(const std::string& name);  // UserError with the nearest name; "val" is dev

// One sequence of token ids (0 is padding and never occurs inside) and its class.
struct TokenExample {
  std::span<const uint8_t> tokens;
  int64_t label = 0;
};

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
  Json details = Json::object();  // adapter's own facts: raw file hashes, generator settings, vocabulary hash
};

class DataSource {
 public:
  virtual ~DataSource() = default;
  [[nodiscard]] virtual int64_t size(Split split) const = 0;
  [[nodiscard]] virtual TokenExample read(Split split, int64_t index) const = 0;  // thread-safe, no allocation
  [[nodiscard]] virtual const DataInfo& info() const = 0;
};

// Where a dataset is looked for and kept.
struct DataLocation {
  Path folder;  // --data, or $XFORMER_DATA/<dataset>; empty: the dataset's generator, if it has one
  Path cache = cache_folder();
  bool require_all_splits = true;  // training needs train, dev and test; eval and data check take what there is
};

// One named, complete set of data rules, sizes and training settings; keys are plan keys ("training.steps").
struct Protocol {
  std::string name;
  std::string summary;
  Json values = Json::object();
};

struct CheckReport;

// What data/adapters/<name>.cpp says about itself; the registry collects these.
struct DatasetDescriptor {
  std::string name;
  std::vector<std::string> aliases;
  std::string title, paper;
  std::string kind = "classification";  // tasks/kinds/<kind>.cpp
  std::string default_family = "encoder";
  std::vector<Protocol> protocols;             // the first is the default
  std::vector<OptionInfo> options;             // without the prefix "data."
  std::vector<std::string> generator_options;  // those of `options` that only the generator reads: refused with --data
  int64_t classes = 0;
  int64_t vocabulary = 0;       // ids in use, padding included
  bool accepts_length = false;  // --length: byte text only
  // The longest sequence a model must take, under these data options: N_max (before any padding to N_pad).
  std::function<int64_t(const Json& options)> max_tokens;
  // Refuses settings that the generator cannot meet, before anything is written (UserError).
  std::function<void(const Json& options)> check_generator = [](const Json&) {};
  // Opens (making or packing into the cache on first use) the data under these options.
  std::function<std::unique_ptr<DataSource>(const Json& options, const DataLocation&, const ProgressCallback&)> open;
  // Reads everything and says what is right, odd or wrong (data/check.h).
  std::function<CheckReport(const Json& options, const DataLocation&, const ProgressCallback&)> check;
  // An example as a person would look at it.
  std::function<std::string(const TokenExample&)> show;
};

}  // namespace xformer::data
