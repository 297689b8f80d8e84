#include "data/datasets.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>

#include "core/plain_files.h"

#define XFORMER_DESCRIBE_TYPE std::vector<xformer::data::DatasetDescriptor>
#include "data/adapters.inc"
#include "data/batches/batch_order.h"
#include "data/check.h"
#include "data/limited_source.h"
#include "data/objective_source.h"

namespace xformer::data {

namespace {

// A function of data options that hears of the adapter's own only.
template <class Result, class... More>
void strip(std::function<Result(const Json&, More...)>& function) {
  if (function)
    function = [inner = std::move(function)](const Json& options, More... more) {
      return inner(without_batching(options), more...);
    };
}

// Files are looked for where they can be, and whatever the file system says of them is an error of ours.
template <class Function>
void guard(Function& function) {
  if (function)
    function = [inner = std::move(function)](const Json& options, const DataLocation& location,
                                             const ProgressCallback& progress) {
      check_place(location.folder);
      try {
        return inner(options, location, progress);
      } catch (const std::filesystem::filesystem_error& error) {
        fail_reading(error);
      }
    };
}

// What an adapter says of a dataset, with the options of batching, of which the adapter never hears.
DatasetDescriptor with_batching(DatasetDescriptor dataset) {
  for (OptionInfo option : batching_schema().options()) {
    if (option.name == "masked_share") option.neutral = option.fallback = dataset.masked_share;
    dataset.options.push_back(option);
  }
  dataset.shape = [inner = std::move(dataset.shape)](const Json& options) {
    return objective_shape(inner(without_batching(options)), batching_of(options));
  };
  strip(dataset.check_options);
  dataset.check_options = [inner = std::move(dataset.check_options),
                           share = dataset.masked_share](const Json& options) {
    inner(options);
    const BatchingOptions batching = batching_of(options);
    XF_CHECK(batching.objective == "masked" || options.value("masked_share", share) == share, UserError,
             "data.masked_share: under data.objective={} nothing is masked; expected {:g}, got {:g}",
             batching.objective, share, batching.masked_share);
  };
  strip(dataset.check_generator);
  dataset.open = [inner = std::move(dataset.open)](const Json& options, const DataLocation& location,
                                                   const ProgressCallback& progress) {
    const BatchingOptions batching = batching_of(options);
    return limited(under_objective(inner(without_batching(options), location, progress), batching), batching.limit);
  };
  strip(dataset.check);
  guard(dataset.open);
  guard(dataset.check);
  if (dataset.member)
    dataset.member = [inner = std::move(dataset.member)](const std::string& name) {
      return with_batching(inner(name));
    };
  return dataset;
}

}  // namespace

const Registry<DatasetDescriptor>& datasets() {
  static const Registry<DatasetDescriptor> kDatasets("task", [] {
    std::vector<DatasetDescriptor> result;
    adapters::for_each_family([&](const std::vector<DatasetDescriptor>& family) {
      for (const DatasetDescriptor& one : family) result.push_back(with_batching(one));
    });
    return result;
  }());
  return kDatasets;
}

const DatasetDescriptor& find_dataset(const std::string& name) {
  if (const DatasetDescriptor* known = datasets().find(name)) return *known;
  const size_t slash = name.find('/');
  const std::string member = slash == std::string::npos ? "" : name.substr(slash + 1);
  const bool plain = !member.empty() && std::all_of(member.begin(), member.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '_';
  });
  if (plain) {
    for (const DatasetDescriptor& entry : datasets().all()) {
      if (!entry.member || !entry.name.starts_with(canonical_name(name.substr(0, slash)) + "/")) continue;
      static std::mutex mutex;
      static std::map<std::string, DatasetDescriptor> members;  // never moves what it holds
      const std::lock_guard lock(mutex);
      return members.try_emplace(name, entry.member(member)).first->second;
    }
  }
  return datasets().get(name);  // says what is wrong
}

}  // namespace xformer::data
