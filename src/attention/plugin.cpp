#include "attention/plugin.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>

#include "core/files.h"
#include "core/hash.h"

namespace xformer::attention {

namespace {

// What a library that was compiled for another program would do is anyone's guess, its initialisers' work included.
void check_interface(const std::string& path, const std::string& bytes) {
  static constexpr std::string_view kMark = XFORMER_INTERFACE_MARK, kOurs = XFORMER_INTERFACE;
  const size_t at = bytes.find(kMark);
  XF_CHECK(at != std::string::npos, DataError,
           "{}: no attention for this program: expected a shared library that xformer_attention() of the CMake package "
           "makes (xformer new attention NAME --alone)",
           path);
  const std::string theirs = bytes.c_str() + at;
  XF_CHECK(theirs == kOurs, DataError,
           "{} was compiled for another xformer, with {}; this program has {}. Compile it anew with this program's "
           "CMake package",
           path, theirs.substr(kMark.size()), kOurs.substr(kMark.size()));
}

Descriptor load(const std::string& path) {
  // A bare name would be looked up among the system's libraries. Never closed: models are made of its code.
  void* const library = dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw DataError(fmt::format("{}: cannot be loaded: {}", path, dlerror()));
  void* const symbol = dlsym(library, "xformer_attention");
  XF_CHECK(symbol != nullptr, DataError, "{}: it exports no function xformer_attention", path);
  std::vector<Descriptor> found;
  reinterpret_cast<decltype(&xformer_attention)>(symbol)(found);
  XF_CHECK(found.size() == 1, DataError, "{}: expected describe() to give one attention, got {}", path, found.size());
  return found.front();
}

// What the library's schema lacks, its functions never see.
template <class Result, class... Rest>
void hide_hash(std::function<Result(const Json&, Rest...)>& function) {
  if (!function) return;
  function = [own = std::move(function)](Json options, Rest... rest) {
    options.erase("sha256");
    return own(options, rest...);
  };
}

Descriptor describe(const std::string& name, const std::string& path, const std::string& sha256) {
  Descriptor result = load(path);
  XF_CHECK(result.build_core || result.build_mixer || result.build_block, DataError,
           "{}: its descriptor builds neither a core nor a mixer nor a block", path);
  for (const OptionInfo& option : result.options)
    XF_CHECK(option.name != "sha256", DataError, "{}: its option 'sha256' has the name of the file's own option", path);
  result.name = name;
  result.aliases.clear();
  result.options.insert(result.options.begin(), hash_option(path, sha256));
  hide_hash(result.build_core);
  hide_hash(result.build_mixer);
  hide_hash(result.build_block);
  hide_hash(result.check);
  hide_hash(result.depth_warning);
  hide_hash(result.prefix_tokens);
  hide_hash(result.appended_padding.holds);
  return result;
}

}  // namespace

const Descriptor& plugin_attention(const std::string& name) {
  struct Opened {
    std::string sha256;
    Descriptor descriptor;
  };
  const std::string path = own_file_path(name), bytes = read_file(path), hash = sha256(bytes);
  static std::mutex guard;
  static std::map<std::string, std::unique_ptr<const Opened>> known;
  const std::lock_guard<std::mutex> lock(guard);
  std::unique_ptr<const Opened>& entry = known[path];
  if (!entry) {
    check_interface(path, bytes);
    entry = std::make_unique<const Opened>(Opened{hash, describe(name, path, hash)});
  }
  XF_CHECK(entry->sha256 == hash, UserError, "{} has changed since it was opened: start the program again", path);
  return entry->descriptor;
}

}  // namespace xformer::attention
