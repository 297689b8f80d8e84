// The Large Movie Review Dataset (Maas et al. 2011): where it lies and its labelled reviews in order.
//
// Looked for are train/{neg,pos}/ and test/{neg,pos}/ in the folder itself or in aclImdb/ below it, else an
// aclImdb*.tar.gz in it, which is streamed. A review is a file <id>_<rating>.txt; its class is its folder. Everything
// else (train/unsup, the bag-of-words files) is passed over. The order is that of split, class and id, whatever the
// file system's or the archive's.
#pragma once

#include <functional>
#include <string_view>

#include "core/files.h"
#include "core/progress_callback.h"
#include "data/source.h"

namespace xformer::data {

struct ImdbFiles {
  Path folder;   // the one with train/ and test/, or empty
  Path archive;  // a tar.gz, or empty
};

// `place` is a folder or an archive. Neither form is a DataError that says what is there.
[[nodiscard]] ImdbFiles find_imdb_files(const Path& place);

struct ImdbReview {
  Split split = Split::kTrain;  // or kTest: the set has no other
  int64_t label = 0;            // 0 negative, 1 positive
  int64_t id = 0;               // within split and class
  int64_t rating = 0;           // 1 to 10 stars
  std::string_view text;        // bytes as they lie in the file, during the call
};

using AddReview = std::function<void(const ImdbReview& review)>;

// A class folder that is missing or empty, an empty review, another file name in a class folder and an id that comes
// twice are DataErrors with the path.
void read_imdb(const ImdbFiles& files, const AddReview& add, const ProgressCallback& progress);

}  // namespace xformer::data
