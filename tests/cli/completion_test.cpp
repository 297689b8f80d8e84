// The scripts are run by the shells they are for.
#include <catch2/catch.hpp>

#include <CLI/CLI.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli/completion.h"
#include "core/error.h"
#include "core/files.h"

namespace {

using namespace xformer::cli;
using Words = std::vector<std::string>;

const CompletionWords kWords = {
    {"--model", {"mrs-linformer", "mrs-linear", "softmax"}},
    {"--set", {"attention.projected_length=", "data.min_length="}},
    {"--precision", {"fp32", "bf16"}},
    {"--dump-config", {"full", "minimal"}},
    {"NAME", {"linformer", "train", "it's $HOME `x`"}},
};

// The same kinds of options as the program's own.
std::string script(const std::string& shell) {
  CLI::App app{"Trains transformers.", "xformer"};
  app.require_subcommand(1);
  CLI::App* train = app.add_subcommand("train", "Train a model: [all] of it, isn't $it\nwith a second line.");
  train->add_option("-m,--model", "the model's name");
  train->add_option("--data", "a folder");
  train->add_option("--set", "key=value ...")->expected(1, 1000);
  train->add_option("--dump-config", "print the configuration")->expected(0, 1);
  train->add_option("--secret", "not for people")->group("");
  train->add_flag("--dry-run")->description("stop before the first step");
  train->add_option_group("numbers")->add_option("--precision", "of the products");
  CLI::App* data = app.add_subcommand("data", "Look at data.");
  data->add_subcommand("check", "Check files.")->add_option("--data", "a folder");
  data->add_subcommand("show", "Show examples.");
  app.add_subcommand("describe", "Describe a name.")->add_option("NAME", "of anything");
  app.add_subcommand("hidden", "Not shown.")->group("");
  return completion_script(app, shell, kWords);
}

struct Folder {
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "xformer-completion-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  xformer::Path path;
};

struct Outcome {
  std::string output;
  int code = -1;
};

Outcome run(const std::string& command) {
  Outcome outcome;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((command + " 2>&1").c_str(), "r"), [](FILE*) { return 0; });
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer{};
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
    outcome.output.append(buffer.data(), count);
  const int status = ::pclose(pipe.get());
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

bool installed(const std::string& shell) { return run("command -v " + shell).code == 0; }

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// What bash offers for these words, the last of which is being typed.
Words bash_offers(const std::string& words) {
  const Folder folder;
  const xformer::Path file = folder.path / "test.bash";
  xformer::write_file_atomically(file, script("bash") + "COMP_WORDS=(" + words +
                                           ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_xformer || exit 9\n"
                                           "((${#COMPREPLY[@]})) && printf '%s\\n' \"${COMPREPLY[@]}\"\nexit 0\n");
  const Outcome outcome = run("bash --norc -u " + file.string());
  CAPTURE(words, outcome.output);
  CHECK(outcome.code == 0);
  return lines_of(outcome.output);
}

Words fish_offers(const std::string& line) {
  const Folder folder;
  xformer::write_file_atomically(folder.path / "xformer.fish", script("fish"));
  const Outcome outcome = run("cd " + folder.path.string() + " && HOME=$PWD XDG_CONFIG_HOME=$PWD XDG_DATA_HOME=$PWD " +
                              "fish --no-config -c 'source xformer.fish; complete -C \"" + line + "\"'");
  CAPTURE(line, outcome.output);
  CHECK(outcome.code == 0);
  Words words = lines_of(outcome.output);
  for (std::string& word : words) word = word.substr(0, word.find('\t'));
  return words;
}

void has_good_syntax(const std::string& shell) {
  const Folder folder;
  xformer::write_file_atomically(folder.path / "script", script(shell));
  const Outcome outcome = run(shell + " -n " + (folder.path / "script").string());
  CHECK(outcome.output.empty());
  CHECK(outcome.code == 0);
}

}  // namespace

TEST_CASE("bash completes commands, nested ones too") {
  CHECK(bash_offers("xformer tr") == Words{"train"});
  CHECK(bash_offers("xformer ''") == Words{"data", "describe", "train"});
  CHECK(bash_offers("xformer data ''") == Words{"check", "show"});
  CHECK(bash_offers("xformer data check --d") == Words{"--data"});
}

TEST_CASE("bash completes options of the command at hand and leaves hidden ones out") {
  CHECK(bash_offers("xformer train --mo") == Words{"--model"});
  CHECK(bash_offers("xformer train --") ==
        Words{"--data", "--dry-run", "--dump-config", "--help", "--model", "--precision", "--set"});
  CHECK(bash_offers("xformer train --dry-run --pre") == Words{"--precision"});
  CHECK(bash_offers("xformer show --d").empty());
}

TEST_CASE("bash completes the values of options by either name and after an equals sign") {
  CHECK(bash_offers("xformer train --model mrs-l") == Words{"mrs-linear", "mrs-linformer"});
  CHECK(bash_offers("xformer train -m mrs-linf") == Words{"mrs-linformer"});
  CHECK(bash_offers("xformer train --model = s") == Words{"softmax"});
  CHECK(bash_offers("xformer train --model =") == Words{"mrs-linear", "mrs-linformer", "softmax"});
  CHECK(bash_offers("xformer train --model = softmax --precision b") == Words{"bf16"});
  CHECK(bash_offers("xformer train --dump-config --precision ''") == Words{"bf16", "fp32"});
}

TEST_CASE("bash goes on with the keys of an option that takes many and offers nothing for their values") {
  CHECK(bash_offers("xformer train --set attention.p") == Words{"attention.projected_length="});
  CHECK(bash_offers("xformer train --set attention.projected_length = 64 da") == Words{"data.min_length="});
  CHECK(bash_offers("xformer train --set attention.projected_length = 6").empty());
}

TEST_CASE("bash does not take a value for a command and leaves file names to the shell") {
  CHECK(bash_offers("xformer train --data data sh").empty());
  CHECK(bash_offers("xformer train --data data --dr") == Words{"--dry-run"});
  CHECK(bash_offers("xformer train --data ''").empty());
  CHECK_THAT(script("bash"), Catch::Contains("complete -o default -F _xformer xformer"));
}

TEST_CASE("bash offers the values of a positional argument as they are written") {
  CHECK(bash_offers("xformer describe lin") == Words{"linformer"});
  CHECK(bash_offers("xformer describe it") == Words{"it's $HOME `x`"});
}

TEST_CASE("zsh accepts its script") {
  CHECK_THAT(script("zsh"), Catch::StartsWith("#compdef xformer\n"));
  if (installed("zsh")) has_good_syntax("zsh");
  else WARN("zsh is not installed: its script was not tried");
}

TEST_CASE("fish completes commands, options and values") {
  CHECK_THAT(script("fish"), Catch::Contains("complete -c xformer"));
  if (!installed("fish")) {
    WARN("fish is not installed: its script was not tried");
    return;
  }
  has_good_syntax("fish");
  CHECK(fish_offers("xformer tr") == Words{"train"});
  CHECK(fish_offers("xformer ") == Words{"data", "describe", "train"});
  CHECK(fish_offers("xformer data ") == Words{"check", "show"});
  CHECK(fish_offers("xformer train --mo") == Words{"--model"});
  CHECK(fish_offers("xformer train --model mrs-l") == Words{"mrs-linear", "mrs-linformer"});
  CHECK(fish_offers("xformer train --model=mrs-linf") == Words{"--model=mrs-linformer"});
  CHECK(fish_offers("xformer train --data describe --precision b") == Words{"bf16"});
  CHECK(fish_offers("xformer train --data xformer.f") == Words{"xformer.fish"});
  CHECK(fish_offers("xformer describe lin") == Words{"linformer"});
  CHECK(fish_offers("xformer data show xformer.f").empty());
}

TEST_CASE("an unknown shell is answered with the known ones") {
  CHECK_THROWS_AS(script("powershell"), xformer::UserError);
  CHECK_THROWS_WITH(script("bsh"), Catch::Contains("bash"));
}
