#include "cli/run.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "cli/printed.h"
#include "core/code_version.h"
#include "core/error.h"
#include "core/names.h"
#include "core/option_names.h"
#include "core/text.h"

namespace xformer::cli {

namespace {

std::string& command_words() {
  static std::string words;
  return words;
}

}  // namespace

std::string recorded_form(const std::vector<std::string>& words) {
  std::map<std::string, std::string> replaced{{"--data", "<data>"},
                                              {"--out", "<out>"},
                                              {"--record-to", "<record>"},
                                              {"--config", "<config>"},
                                              {"--init-from", "<weights>"}};
  // Elsewhere these two are flags.
  if (!words.empty() && words.front() == "bench") replaced.insert({{"--json", "<json>"}, {"--markdown", "<markdown>"}});
  std::string result = "xformer";
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const size_t equals = word.find('=');
    const auto known = replaced.find(word.substr(0, equals));
    if (known == replaced.end()) {
      result += " " + shell_word(word);
    } else {
      result += " " + known->first + " " + known->second;
      if (equals == std::string::npos) ++i;
    }
  }
  return result;
}

namespace {

// What a plan's option is called here that other programs know as `word`: "--bs" -> "--batch".
std::string meant_option(const std::string& word, const std::vector<std::string>& known) {
  const auto has = [&](const std::string& name) { return std::find(known.begin(), known.end(), name) != known.end(); };
  const std::string key = word.starts_with("--") && has("--set") ? usual_option(word.substr(2)) : "";
  if (key.empty()) return "";
  const std::string own =
      key == "training.learning_rate" ? "--lr" : "--" + canonical_name(key.substr(key.find('.') + 1));
  return has(own) ? own : "--set " + key + "=VALUE";
}

// The option or verb nearest to a word that nobody expected.
std::string parse_error_message(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App* chosen = &program;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  std::string text = error.what();
  // A verb that is missing may be there, misspelt.
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::vector<std::string> extras = program.remaining(true);
    std::vector<std::string> known;
    for (const CLI::Option* option : chosen->get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    for (const CLI::App* verb : chosen->get_subcommands({})) known.push_back(verb->get_name());
    if (!extras.empty()) {
      const std::string word = extras.front().substr(0, extras.front().find('='));
      text = unknown_name_message(word.starts_with('-') ? "option" : "command", word, known);
      if (const std::string meant = meant_option(word, known); !meant.empty())
        text = fmt::format("unknown option '{}'; here it is {}", word, meant);
    }
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && text.find("At Most 1 ") != std::string::npos)
    text = text.substr(0, text.find(':')) + " is given more than once";
  std::string name = chosen->get_name();
  for (const CLI::App* parent = chosen->get_parent(); parent != nullptr; parent = parent->get_parent())
    name = parent->get_name() + " " + name;
  return fmt::format("{}\nsee `{} --help`", text, name);
}

void print_error(const std::string& text) {
  const size_t width = text_width(STDERR_FILENO);
  const std::string whole = "xformer: " + text;  // the lines are views of it
  for (const std::string_view line : split(whole, '\n'))
    note(width == 0 ? std::string(line) : fmt::format("{}", fmt::join(wrapped(line, width), "\n")));
}

}  // namespace

CLI::Validator whole_number(int64_t least) {
  return {[least](std::string& text) -> std::string {
            int64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool whole = error == std::errc() && end == text.data() + text.size();
            return whole && value >= least ? "" : fmt::format("expected a whole number from {}, got '{}'", least, text);
          },
          ""};
}

const std::string& recorded_command() { return command_words(); }

namespace {

// What is empty is a variable that was not set, more often than not, and says nothing.
void check_values(const CLI::App& program) {
  const CLI::App* chosen = &program;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  for (const CLI::Option* option : chosen->get_options())
    for (const std::string& value : option->results())
      XF_CHECK(!value.empty() || option->get_expected_min() == 0, UserError, "{}: expected a value, got ''",
               option->get_name());
}

// A program may be started without them; the next file that is opened would be taken for the output then.
void open_missing_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", O_RDWR));  // takes the lowest free number
}

int unwritten_output(int error) {
  print_error(fmt::format("the standard output cannot be written: {}", std::strerror(error)));
  return static_cast<int>(ExitCode::kResource);
}

int run_command(int argc, char** argv, const std::function<std::vector<CommandSetup>()>& commands) {
  command_words() = recorded_form(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  CLI::App program("Trains, measures and compares efficient-attention Transformers.", "xformer");
  const CodeVersion& code = code_version();
  program.set_version_flag("--version",
                           fmt::format("xformer {} ({}{}, {}, {})", code.version, code.commit.substr(0, 12),
                                       code.dirty ? ", modified" : "", code.compiler, code.build));
  set_formatter(program);
  program.require_subcommand(0, 1);
  program.footer(
      "Exit codes: 0 done, 1 cells of a sweep were given up, 2 wrong name, option or value, 3 data missing or damaged, "
      "4 out of memory, disk full, no such device, no permission, no network, 5 training diverged, 6 interrupted "
      "after saving, 70 a bug in xformer.");
  std::vector<std::function<int()>> actions;
  try {
    for (const CommandSetup& setup : commands()) actions.push_back(setup(program));
    try {
      program.parse(argc, argv);
    } catch (const CLI::Success& success) {  // --help, --version
      // Help of a command that there is not.
      if (argc > 1 && argv[1][0] != '-' && program.get_subcommands().empty()) {
        std::vector<std::string> verbs;
        for (const CLI::App* verb : program.get_subcommands({})) verbs.push_back(verb->get_name());
        print_error(unknown_name_message("command", argv[1], verbs) + "\nsee `xformer --help`");
        return static_cast<int>(ExitCode::kUser);
      }
      return program.exit(success);
    } catch (const CLI::ParseError& error) {
      print_error(parse_error_message(program, error));
      return static_cast<int>(ExitCode::kUser);
    }
    check_values(program);
    const auto verbs = program.get_subcommands({});
    for (size_t i = 0; i < verbs.size(); ++i)
      if (verbs[i]->parsed()) return actions[i]();
    fmt::print("{}", program.help());
    return static_cast<int>(ExitCode::kDone);
  } catch (const InternalError& error) {
    print_error(
        fmt::format("{}\nThis is a bug in xformer {} ({}). Please report it with the command and the run's log.jsonl.",
                    error.what(), code.version, code.commit));
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    print_error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::filesystem::filesystem_error& error) {
    print_error(fmt::format("{}: {}", error.path1().string(), error.code().message()));  // no bug of ours
    return static_cast<int>(error.code() == std::errc::permission_denied ||
                                    error.code() == std::errc::no_space_on_device
                                ? ExitCode::kResource
                                : ExitCode::kData);
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return unwritten_output(error.code().value());
    print_error(error.what());
    return static_cast<int>(ExitCode::kResource);
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return static_cast<int>(ExitCode::kResource);
  } catch (const std::exception& error) {
    print_error(fmt::format("{}\nThis is a bug in xformer {} ({}). Please report it with the command.", error.what(),
                            code.version, code.commit));
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace

int run(int argc, char** argv, const std::function<std::vector<CommandSetup>()>& commands) {
  open_missing_streams();
  const int code = run_command(argc, argv, commands);
  // What was printed is in the buffer still.
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return written || code != 0 ? code : unwritten_output(errno);
}

}  // namespace xformer::cli
