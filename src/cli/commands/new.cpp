// `xformer new attention NAME`: the file of a new attention, its test and its rows of claims, from skeletons in the
// source tree, ready to be compiled and changed. With --alone a project of its own, for `--model plugin:FILE`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "cli/command.h"
#include "core/error.h"
#include "core/files.h"
#include "core/names.h"
#include "core/text.h"

namespace xformer::cli {

namespace {

constexpr std::string_view kSkeletons = "src/attention/skeletons";
constexpr std::string_view kClaims = "tests/contract/claims.h";
// The row of claims above which new ones stand.
constexpr std::string_view kLastRow = "    // `xformer new attention` adds rows above.\n";

// Words of C++ that look like names: none can be a namespace.
constexpr std::array kReserved = {
    "alignas", "and",     "asm",      "auto",    "bool",     "break",     "case",      "catch",    "char",
    "class",   "compl",   "concept",  "const",   "continue", "default",   "delete",    "do",       "double",
    "else",    "enum",    "explicit", "export",  "extern",   "false",     "float",     "for",      "friend",
    "goto",    "if",      "inline",   "int",     "long",     "mutable",   "namespace", "new",      "noexcept",
    "not",     "nullptr", "operator", "or",      "private",  "protected", "public",    "register", "requires",
    "return",  "short",   "signed",   "sizeof",  "static",   "struct",    "switch",    "template", "this",
    "throw",   "true",    "try",      "typedef", "typeid",   "typename",  "union",     "unsigned", "using",
    "virtual", "void",    "volatile", "while",   "xor"};

struct NewArguments {
  std::string name, into;
  bool core = false, mixer = false, block = false, alone = false;
  [[nodiscard]] std::string role() const { return mixer ? "mixer" : block ? "block" : "core"; }
};

Path program() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

// The source tree: the one named, the folder that we are in, or that whose build/ this program lies in.
Path source_tree(const std::string& into) {
  std::error_code ignored;
  for (const Path& folder :
       into.empty() ? std::vector<Path>{".", program().parent_path().parent_path()} : std::vector<Path>{into})
    if (std::filesystem::exists(folder / kSkeletons, ignored)) return folder;
  throw UserError(
      fmt::format("{} holds no source tree of xformer ({}): run this in a checkout, or name one with --into",
                  into.empty() ? "this folder" : into, kSkeletons));
}

void check_name(const std::string& name, const Json& known) {
  const bool fits = !name.empty() && name.front() >= 'a' && name.front() <= 'z' && name.back() != '-' &&
                    name.find("--") == std::string::npos && std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                    });
  XF_CHECK(fits, UserError, "'{}': expected a name in kebab-case, e.g. hydra or hydra-net", name);
  XF_CHECK(std::find(kReserved.begin(), kReserved.end(), name) == kReserved.end(), UserError,
           "'{}' is a word of C++, and the name becomes a namespace", name);
  for (const char* kind : {"attentions", "models"})
    for (const Json& entry : known[kind]) {
      const std::vector<std::string> aliases = entry["aliases"];
      XF_CHECK(entry["name"] != name && std::find(aliases.begin(), aliases.end(), name) == aliases.end(), UserError,
               "there is an attention or a model of the name '{}' already (`xformer describe {}`)", name, name);
      // "mrs-hydra" is what "mrs" makes of "hydra".
      if (const std::string decorator = entry.value("decorator", ""); !decorator.empty())
        XF_CHECK(!name.starts_with(decorator + "-"), UserError,
                 "'{}': {}- in front of a name is taken (`xformer "
                 "describe {}-softmax`)",
                 name, decorator, decorator);
    }
}

// "hydra-net" with a capital for each word, between which `between` stands.
std::string capitals(const std::string& name, std::string_view between) {
  std::string result;
  for (const std::string_view word : split(name, '-')) {
    if (!result.empty()) result += between;
    result += static_cast<char>(word.front() >= 'a' && word.front() <= 'z' ? word.front() - 'a' + 'A' : word.front());
    result += word.substr(1);
  }
  return result;
}

std::string filled(std::string text, const std::string& name, const std::string& stem) {
  for (const auto& [mark, value] : {std::pair<std::string_view, std::string>{"@NAME@", name},
                                    {"@STEM@", stem},
                                    {"@TYPE@", capitals(name, "")},
                                    {"@TITLE@", capitals(name, " ")}})
    for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += value.size())
      text.replace(at, mark.size(), value);
  return text;
}

// A folder with the file and what compiles it.
int new_project(const NewArguments& arguments, const std::string& name, const std::string& stem) {
  const Path build = program().parent_path(), installed = build.parent_path() / "share";
  const bool package = std::filesystem::exists(installed / "xformer/skeletons");
  const Path skeletons = package ? installed / "xformer/skeletons" : source_tree("") / kSkeletons;
  const Path folder = Path(arguments.into) / stem;
  XF_CHECK(!std::filesystem::exists(folder), UserError, "{} is there already", folder.string());
  const std::string code = filled(read_file(skeletons / (arguments.role() + ".cpp.in")), name, stem);
  const std::string project = filled(read_file(skeletons / "CMakeLists.txt.in"), name, stem);
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / (stem + ".cpp"), code);
  write_file_atomically(folder / "CMakeLists.txt", project);
  fmt::print(
      "{0}/{1}.cpp\n{0}/CMakeLists.txt\n\n"
      "They compile as they are: kernel attention, to be replaced by yours.\n"
      "  cmake -S {0} -B {0}/build -Dxformer_DIR={2} && cmake --build {0}/build\n"
      "  xformer train --model plugin:{0}/build/lib{1}.so --task temporal-order --steps 20\n",
      folder.string(), stem, (package ? installed / "cmake/xformer" : build).string());
  return 0;
}

int new_attention(const NewArguments& arguments, const Catalogue& catalogue) {
  const std::string name = canonical_name(arguments.name);
  check_name(name, catalogue.read());
  std::string stem = name;
  std::replace(stem.begin(), stem.end(), '-', '_');
  if (arguments.alone) return new_project(arguments, name, stem);
  const Path tree = source_tree(arguments.into), variant = fmt::format("src/attention/variants/{}.cpp", stem),
             test = fmt::format("tests/attention/{}_test.cpp", stem);
  for (const Path& file : {variant, test})
    XF_CHECK(!std::filesystem::exists(tree / file), UserError, "{} is there already", (tree / file).string());
  std::string claims = read_file(tree / kClaims);
  const size_t last = claims.find(kLastRow);
  XF_CHECK(last != std::string::npos, DataError, "{}: found no line \"{}\"", (tree / kClaims).string(), trim(kLastRow));

  const auto skeleton = [&](const std::string& part) {
    return filled(read_file(tree / kSkeletons / (arguments.role() + part)), name, stem);
  };
  claims.insert(last, skeleton("_claims.in"));
  write_file_atomically(tree / variant, skeleton(".cpp.in"));
  write_file_atomically(tree / test, skeleton("_test.cpp.in"));
  write_file_atomically(tree / kClaims, claims);
  const bool here = tree == ".";  // else the tree is another than the one somebody may think of
  const auto place = [&](const Path& file) { return (here ? file : tree / file).string(); };
  fmt::print(
      "{0}\n{1}\n{2}: the claims of {3}\n\n"
      "They compile and pass as they are: kernel attention, to be replaced by yours.\n"
      "{4}"
      "  ninja -C build xformer                    # finds the new file\n"
      "  ./xformer train --model {3} --task temporal-order --steps 20\n"
      "  ninja -C build attention_test contract_test\n"
      "  build/tests/attention_test '{3}*' && build/tests/contract_test\n"
      "README's table of attentions: ./xformer list attentions --markdown\n",
      place(variant), place(test), place(kClaims), name, here ? "" : fmt::format("  cd {}\n", tree.string()));
  return 0;
}

}  // namespace

std::function<int()> add_new(CLI::App& program, const Catalogue& catalogue) {
  const auto arguments = std::make_shared<NewArguments>();
  CLI::App& command = *program.add_subcommand("new", "files for an attention of your own, that compile as written");
  CLI::App& own = *command.add_subcommand("attention", "its file, its test and its claims, in the source tree");
  own.add_option("NAME", arguments->name, "in kebab-case, e.g. hydra-net")->required();
  CLI::Option* const core =
      own.add_flag("--core", arguments->core, "works on q, k and v between projections (the default; has a mrs- form)");
  CLI::Option* const mixer = own.add_flag("--mixer", arguments->mixer, "owns its projections");
  CLI::Option* const block =
      own.add_flag("--block", arguments->block, "owns norms, residuals and feed-forward part too");
  core->excludes(mixer)->excludes(block);
  mixer->excludes(block);
  own.add_flag("--alone", arguments->alone, "a project of its own instead, for --model plugin:FILE");
  own.add_option("--into", arguments->into,
                 "source tree; default: this folder, else the one this program was built in. With --alone: where the "
                 "project's folder goes")
      ->type_name("DIR");
  command.require_subcommand(1);
  return [arguments, catalogue] { return new_attention(*arguments, catalogue); };
}

}  // namespace xformer::cli
