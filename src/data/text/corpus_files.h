// The files of a corpus by split, as their names say: train.jsonl, dev.txt, wiki40b_en_test.txt.gz,
// c4-train.00000-of-01024.json.gz, or any name in a folder train/.
#pragma once

#include <array>
#include <vector>

#include "data/source.h"

namespace xformer::data {

struct CorpusFiles {
  std::array<std::vector<Path>, 3> of;  // by Split, sorted; validation counts as dev
  bool named = false;                   // whether any name says a split; else all are train
  [[nodiscard]] const std::vector<Path>& files(Split split) const { return of[static_cast<size_t>(split)]; }
  [[nodiscard]] std::vector<Path> all() const;
};

// `place` is a folder, with the files in it, in its only subfolder or in folders of splits, or one file. DataErrors: no
// file of documents; names of splits, and none of train; files that say no split beside such that do.
[[nodiscard]] CorpusFiles find_corpus(const std::string& task, const Path& place);

// The only file <name>.model in the folder (or beside the file). DataError where there is none, or several.
[[nodiscard]] Path find_piece_model(const Path& place);

}  // namespace xformer::data
