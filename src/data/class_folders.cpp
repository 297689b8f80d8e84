#include "data/class_folders.h"

#include <algorithm>

#include "core/error.h"
#include "core/names.h"
#include "data/what_is_there.h"

namespace xformer::data {
namespace {

std::string near(const std::string& name, const std::vector<std::string>& there) {
  const std::string nearest = nearest_name(name, there);
  return fmt::format(", found none of {}{}", name, nearest.empty() ? "" : fmt::format(" (is it '{}'?)", nearest));
}

}  // namespace

void require_class_folders(const ClassFolders& wanted, const Path& place) {
  XF_CHECK(std::filesystem::is_directory(place), DataError,
           "expected folders of {}, one for each class, in one folder, found the file {}; an archive is to be unpacked "
           "first",
           wanted.examples, place.string());
}

std::vector<std::string> chosen_classes(const ClassFolders& wanted, const Path& place,
                                        const std::vector<std::string>& there, const std::vector<std::string>& asked) {
  const std::vector<std::string>& classes = asked.empty() ? there : asked;
  XF_CHECK(classes.size() >= 2, DataError, "no {} of {} in {}: expected {}; {}", wanted.examples, wanted.task,
           place.string(), wanted.expected, what_is_there(place));
  for (const std::string& name : classes)
    XF_CHECK(std::find(there.begin(), there.end(), name) != there.end(), DataError,
             "no {} of {} in {}: expected a folder for each of {}{}; {}", wanted.examples, wanted.task, place.string(),
             first_names(classes), near(name, there), what_is_there(place));
  return classes;
}

}  // namespace xformer::data
