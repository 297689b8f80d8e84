// Sound in WAV files in folders by class, as Speech Commands is unpacked (Warden 2018): <root>/<class>/<file>.wav, and
// perhaps validation_list.txt and testing_list.txt with the paths of those that are dev and test. A folder whose name
// begins with '_' (_background_noise_) or '.' is no class.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/source.h"

namespace xformer::data {

struct AudioTree {
  struct One {
    std::string path;  // below the root
    int64_t label = 0;
    std::optional<Split> split;  // of the lists; nothing: there are none
  };
  Path root;
  std::vector<std::string> classes;
  std::vector<One> files;          // by class and name
  int64_t other_files = 0;         // in the classes' folders, whose names do not end in .wav
  std::vector<std::string> lists;  // below the root, which say what is dev and test; none: nothing says it
};

// `classes`: those that are read, by label; empty: every folder, sorted by name.
// DataErrors: no folder (an archive is to be unpacked first), a class that is not there or has no sound, fewer than
// two, one list without the other, a line of a list that names no file of a class that is read, or one that the other
// list has.
[[nodiscard]] AudioTree find_audio(const std::string& task, const Path& place, const std::vector<std::string>& classes);

}  // namespace xformer::data
