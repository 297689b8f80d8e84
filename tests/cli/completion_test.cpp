// What may follow some words, and the scripts in the shells they are for, which ask a program of the same answers.
#include "cli/completion.h"

#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <sstream>

#include "cli/command.h"
#include "core/error.h"
#include "scratch.h"

namespace {

using namespace xformer;
using namespace xformer::cli;
using Words = std::vector<std::string>;

Json entry(const std::string& name, const Json& more = Json::object()) {
  Json result{{"name", name}, {"title", name + "'s title"}, {"aliases", Json::array()}, {"options", Json::array()}};
  result.update(more);
  return result;
}

Json option(const std::string& name, const Json& choices = Json::array(), const char* type = "text") {
  return {{"name", name}, {"help", "of " + name}, {"choices", choices}, {"type", type}};
}

Json protocols(const Words& names) {
  Json result = Json::array();
  for (const std::string& name : names) result.push_back({{"name", name}, {"summary", "a summary"}});
  return result;
}

// The same kinds of options as the program's own.
Json catalogue() {
  CLI::App app{"Trains transformers.", "xformer"};
  app.require_subcommand(1);
  CLI::App* train = app.add_subcommand("train", "Train a model: [all] of it, isn't $it\nwith a second line.");
  train->add_option("-m,--model", "the model's name");
  train->add_option("--task", "the task");
  train->add_option("--protocol", "the protocol");
  train->add_option("--data", "a folder");
  train->add_option("--set", "key=value ...")->expected(1, 1000)->type_name("KEY=VALUE");
  train->add_option("SETTING", "the same")->expected(0, 1000);
  words(train->add_option("--dump-config", "print the configuration"), {"full", "minimal"});
  train->add_option("--secret", "not for people")->group("");
  train->add_flag("--dry-run")->description("stop before the first step");
  words(train->add_option_group("numbers")->add_option("--precision", "of the products"), {"fp32", "bf16"});
  CLI::App* data = app.add_subcommand("data", "Look at data.");
  data->add_subcommand("check", "Check files.")->add_option("--data", "a folder");
  data->add_subcommand("fetch", "Get files.")->add_option("NAME", "task");
  app.add_subcommand("describe", "Describe a name.")->add_option("NAME", "of anything");
  app.add_subcommand("hidden", "Not shown.")->group("");
  const Json scales = option("attention.projected_len");
  return {{"verbs", command_tree(app)},
          {"attentions",
           {entry("linear"), entry("linformer", {{"options", {scales}}}), entry("mrs-linear"),
            entry("nystromformer", {{"aliases", {"nystrom"}}})}},
          {"models",
           {entry("encoder", {{"options", {option("model.pooling", {"cls", "mean"})}}}),
            entry("vit", {{"aliases", {"deit"}}, {"options", {option("model.patch")}}})}},
          {"whole_models", {entry("mrs-vit"), entry("mrs-deit")}},
          {"tasks",
           {entry("listops", {{"family", "encoder"}, {"fetch", false}, {"protocols", protocols({"mlpen", "glra"})}}),
            entry("image", {{"family", "vit"},
                            {"fetch", true},
                            {"protocols", protocols({"small"})},
                            {"options", {option("data.mirror", Json::array(), "bool")}}}),
            entry("uea/<name>", {{"fetch", true}, {"family", "encoder"}, {"protocols", Json::array()}})}},
          {"groups", {entry("training", {{"options", {option("training.learning_rate"), option("training.batch")}}})}},
          {"terms",
           {entry("mlpen", {{"kind", "protocol"}}), entry("rtdl", {{"kind", "protocol"}}),
            entry("adamw", {{"kind", "optimizer"}})}}};
}

// The words offered behind these; " " at the end: a new word is begun.
Words offers(const std::string& line) {
  std::istringstream stream(line);
  Words typed{std::istream_iterator<std::string>(stream), {}};
  if (line.empty() || line.back() == ' ') typed.emplace_back();
  const Offers found = complete(catalogue(), typed);
  Words result;
  for (const Offer& one : found.words) result.push_back(one.word);
  if (found.files) result.emplace_back(":files");
  std::sort(result.begin(), result.end());
  return result;
}

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

// A folder with the scripts and a program that answers as told, and writes down what it was asked.
struct Shells {
  explicit Shells(const std::string& answer) {
    scratch::put(folder / "xformer",
                 "#!/bin/sh\nprintf '%s|' \"$@\" >>asked\n[ \"$1\" = complete ] && printf %b '" + answer + "'\n");
    std::filesystem::permissions(folder / "xformer", std::filesystem::perms::owner_all);
    for (const char* shell : {"bash", "zsh", "fish"}) scratch::put(folder / shell, completion_script(shell));
  }
  [[nodiscard]] Outcome in(const std::string& command) const {
    return run("cd " + (folder / "").string() + " && HOME=$PWD XDG_CONFIG_HOME=$PWD XDG_DATA_HOME=$PWD " + command);
  }
  [[nodiscard]] std::string asked() const { return scratch::get(folder / "asked"); }
  scratch::Folder folder;
};

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// What bash puts in place of its last word.
Words bash_replies(const Shells& shells, const std::string& line) {
  scratch::put(shells.folder / "test.bash", completion_script("bash") + "COMP_LINE='" + line +
                                                "' COMP_POINT=${#COMP_LINE}\n_xformer || exit 9\n"
                                                "((${#COMPREPLY[@]})) && printf '%s\\n' \"${COMPREPLY[@]}\"\nexit 0\n");
  const Outcome outcome = shells.in("bash --norc -u test.bash");
  CAPTURE(line, outcome.output);
  CHECK(outcome.code == 0);
  return lines_of(outcome.output);
}

}  // namespace

TEST_CASE("commands are offered, nested ones too, and the options of the command at hand but hidden ones") {
  CHECK(offers("") == Words{"data", "describe", "train"});
  CHECK(offers("tr") == Words{"train"});
  CHECK(offers("data ") == Words{"check", "fetch"});
  CHECK(offers("data check --d") == Words{"--data"});
  CHECK(offers("train --mo") == Words{"--model"});
  CHECK(offers("train --d") == Words{"--data", "--dry-run", "--dump-config"});
  CHECK(offers("train --dry-run --pre") == Words{"--precision"});
  CHECK(offers("train --secr").empty());
  CHECK(offers("show --d").empty());
  CHECK(complete(catalogue(), {"tr"}).words.front().help == "Train a model: [all] of it, isn't $it");
}

TEST_CASE("values of options, by either name, behind an equals sign, in lists") {
  CHECK(offers("train --precision ") == Words{"bf16", "fp32"});
  CHECK(offers("train --dump-config=f") == Words{"--dump-config=full"});
  CHECK(offers("train -m lin") == Words{"linear", "linformer"});
  CHECK(offers("train --model=linf") == Words{"--model=linformer"});
  CHECK(offers("train --model linear,linf") == Words{"linear,linformer"});
  CHECK(offers("train --data ") == Words{":files"});
  CHECK(offers("train --data=") == Words{":files"});
  CHECK(offers("train --data data --dr") == Words{"--dry-run"});  // a value is no command
}

TEST_CASE("models are attentions, families and both, and their aliases") {
  CHECK(offers("train --model mrs-") == Words{"mrs-deit", "mrs-linear", "mrs-vit"});
  CHECK(offers("train --model d") == Words{"deit"});
  CHECK(offers("train --model ny") == Words{"nystrom", "nystromformer"});
  CHECK(offers("train --model vit/l") == Words{"vit/linear", "vit/linformer"});
  CHECK(offers("train --model vti/l").empty());
}

TEST_CASE("tasks decide which protocols there are, and models and tasks which options") {
  CHECK(offers("train --protocol ") == Words{"mlpen", "rtdl"});
  CHECK(offers("train --task listops --protocol ") == Words{"glra", "mlpen"});
  CHECK(offers("train task=image --protocol ") == Words{"small"});
  CHECK(offers("train --set attention.") == Words{"attention.projected_len="});
  CHECK(offers("train --model linear --set attention.").empty());
  CHECK(offers("train --model linformer --set training.b") == Words{"training.batch="});
  CHECK(offers("train --model deit --set model.") == Words{"model.patch="});
  CHECK(offers("train --task listops --model linear --set model.") == Words{"model.pooling="});
  CHECK(offers("train --set training.batch=4 model.pooling=m") == Words{"model.pooling=mean"});
  CHECK(offers("train data.mirror=") == Words{"data.mirror=false", "data.mirror=true"});
  CHECK(offers("train lr=").empty());
}

TEST_CASE("names are those that the command can do something with") {
  CHECK(offers("data fetch ") == Words{"image"});
  CHECK(offers("describe a") == Words{"adamw"});
  CHECK(offers("describe mrs-d") == Words{"mrs-deit"});
}

TEST_CASE("bash asks the program, and puts the answer behind what it takes for a word's beginning") {
  const Shells shells(R"(mrs-linear\thelp\nmrs-linformer\thelp with blanks\n)");
  CHECK(bash_replies(shells, "./xformer train --model mrs-l") == Words{"mrs-linear", "mrs-linformer"});
  CHECK(shells.asked() == "complete|train|--model|mrs-l|");
  const Shells equals(R"(--model=linear\t\n)");
  CHECK(bash_replies(equals, "./xformer train --model=l") == Words{"linear"});
  const Shells nothing("");
  CHECK(bash_replies(nothing, "./xformer train ").empty());
  CHECK(nothing.asked() == "complete|train||");
  const Shells files(R"(:files\n)");
  CHECK(bash_replies(files, "./xformer train --data ").empty());
}

TEST_CASE("zsh accepts its script") {
  const Shells shells("");
  CHECK_THAT(completion_script("zsh"), Catch::StartsWith("#compdef xformer\n"));
  if (!installed("zsh")) {
    WARN("zsh is not installed: its script was not tried");
    return;
  }
  const Outcome outcome = shells.in("zsh -n zsh");
  CHECK((outcome.output.empty() && outcome.code == 0));
  CHECK(shells.in("zsh -f -c 'source ./zsh; (( $+functions[_xformer] )) && print -- ${_comps[xformer]}'").output ==
        "_xformer\n");
}

TEST_CASE("fish asks the program and leaves file names to its own completion") {
  if (!installed("fish")) {
    WARN("fish is not installed: its script was not tried");
    return;
  }
  const Shells shells(R"(mrs-linear\thelp\n)");
  const auto offered = [&](const Shells& at, const std::string& line) {
    const Outcome outcome = at.in("fish --no-config -c 'source fish; complete -C \"" + line + "\"'");
    CAPTURE(line, outcome.output);
    CHECK(outcome.code == 0);
    Words words = lines_of(outcome.output);
    for (std::string& word : words) word = word.substr(0, word.find('\t'));
    return words;
  };
  CHECK(shells.in("fish --no-config -n fish").output.empty());
  CHECK(offered(shells, "./xformer train --model mrs-l") == Words{"mrs-linear"});
  CHECK(offered(Shells(R"(--model=linear\t\n)"), "./xformer train --model=l") == Words{"--model=linear"});
  CHECK(offered(Shells(R"(:files\n)"), "./xformer train --data xf") == Words{"xformer"});
}

TEST_CASE("an unknown shell is answered with the known ones") {
  CHECK_THROWS_AS(completion_script("powershell"), UserError);
  CHECK_THROWS_WITH(completion_script("bsh"), Catch::Contains("bash"));
}
