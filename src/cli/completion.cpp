// The option tree is copied into plain structs once; each shell has a writer of its own below.
#include "cli/completion.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "core/names.h"

namespace xformer::cli {
namespace {

using Words = std::vector<std::string>;

struct Argument {
  Words flags;       // "-m", "--model"; empty for a positional argument
  std::string name;  // of the value, for people
  std::string help;
  Words values;
  bool takes_value = false, may_lack_value = false, many = false;
};

struct Command {
  std::string name, path, help;  // "train", "xformer train"
  std::vector<Argument> arguments;
  std::vector<Command> commands;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Argument read_option(const CLI::Option& option, const CompletionWords& words) {
  Argument argument;
  for (const std::string& name : option.get_snames()) argument.flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) argument.flags.push_back("--" + name);
  argument.takes_value = option.get_items_expected_max() > 0;
  argument.may_lack_value = option.get_items_expected_min() == 0;
  argument.many = option.get_items_expected_max() > 1;
  argument.name = option.get_positional() ? option.get_name(true) : option.get_type_name();
  if (argument.name.empty()) argument.name = "value";
  argument.help = first_line(option.get_description());
  for (const auto& [key, values] : words) {
    const bool flag = std::find(argument.flags.begin(), argument.flags.end(), key) != argument.flags.end();
    if (flag || (option.get_positional() && option.get_name(true) == key)) argument.values = values;
  }
  return argument;
}

void read_options(const CLI::App& app, const CompletionWords& words, Command& into) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    Argument argument = read_option(*option, words);
    // A group of options inherits a --help of its own.
    const bool known = std::any_of(into.arguments.begin(), into.arguments.end(), [&](const Argument& other) {
      return !other.flags.empty() && other.flags == argument.flags;
    });
    if (!known) into.arguments.push_back(std::move(argument));
  }
}

Command read_command(const CLI::App& app, const std::string& name, const std::string& path,
                     const CompletionWords& words) {
  Command command{name, path, first_line(app.get_description()), {}, {}};
  read_options(app, words, command);
  const std::function<bool(const CLI::App*)> shown = [](const CLI::App* sub) { return !sub->get_group().empty(); };
  for (const CLI::App* sub : app.get_subcommands(shown)) {
    // A nameless one is a group of options that belong to this command.
    if (sub->get_name().empty()) read_options(*sub, words, command);
    else command.commands.push_back(read_command(*sub, sub->get_name(), path + " " + sub->get_name(), words));
  }
  return command;
}

template <class Visit>
void visit_all(const Command& command, const Visit& visit) {
  visit(command);
  for (const Command& sub : command.commands) visit_all(sub, visit);
}

bool is_word_character(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) != 0 ||
         std::string_view("._=+-/").find(byte) != std::string_view::npos;
}

std::string backslashed(std::string_view text, std::string_view special) {
  std::string result;
  for (const char byte : text) {
    if (special.find(byte) != std::string_view::npos) result += '\\';
    result += byte;
  }
  return result;
}

std::string backslashed_word(std::string_view text) {
  std::string result;
  for (const char byte : text) {
    if (!is_word_character(byte)) result += '\\';
    result += byte;
  }
  return result;
}

// For bash and zsh, where nothing is special between single quotes.
std::string single_quoted(std::string_view text) {
  std::string result = "'";
  for (const char byte : text) {
    if (byte == '\'') result += "'\\''";
    else result += byte;
  }
  return result + "'";
}

std::string fish_quoted(std::string_view text) { return "'" + backslashed(text, "\\'") + "'"; }

template <class Quote>
std::string joined(const Words& words, std::string_view separator, const Quote& quote) {
  Words quoted;
  for (const std::string& word : words) quoted.push_back(quote(word));
  return fmt::format("{}", fmt::join(quoted, separator));
}

std::string identifier(std::string_view text) {
  std::string result;
  for (const char byte : text) result += std::isalnum(static_cast<unsigned char>(byte)) != 0 ? byte : '_';
  return result;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// bash -------------------------------------------------------------------------------------------------

constexpr std::string_view kBashMain = R"bash(
@F@() {
  local current="${COMP_WORDS[COMP_CWORD]}" path='@P@' pending='' before='' glued=no i word
  local takes many files
  local -a commands options values candidates=()
  COMPREPLY=()
  @F@_level "$path"
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word="${COMP_WORDS[i]}" before="${COMP_WORDS[i-1]}"
    if [[ $word == '=' ]]; then
      # bash splits --name=value and key=value into three words.
      [[ -n $pending && $before == "$pending" ]] || glued=yes
    elif [[ $glued == yes ]]; then
      glued=no
    elif [[ $word == -* ]]; then
      pending=''
      [[ $takes == *" $word "* ]] && pending="$word"
    elif [[ -n $pending ]]; then
      [[ $many == *" $pending "* ]] || pending=''
    elif [[ " ${commands[*]} " == *" $word "* ]]; then
      path+=" $word"
      @F@_level "$path"
    fi
  done
  if [[ $current == '=' ]]; then
    [[ -n $pending && ${COMP_WORDS[COMP_CWORD-1]} == "$pending" ]] || return
    current=''
  fi
  [[ $glued == yes ]] && return
  if [[ $current == -* ]]; then
    candidates=("${options[@]}")
    files=no
  elif [[ -n $pending ]]; then
    values=() files=yes
    @F@_values "$path $pending"
    candidates=("${values[@]}")
  else
    candidates=("${commands[@]}" "${values[@]}")
  fi
  for word in "${candidates[@]}"; do
    [[ $word == "$current"* ]] && COMPREPLY+=("$word")
  done
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
  if [[ ${#COMPREPLY[@]} == 0 && $files == no ]]; then compopt +o default 2>/dev/null; fi
  return 0
}
complete -o default -F @F@ @P@
)bash";

std::string bash_script(const Command& root) {
  std::string levels, values;
  visit_all(root, [&](const Command& command) {
    Words commands, options, positional;
    std::string takes = " ", many = " ";
    bool files = false;
    for (const Command& sub : command.commands) commands.push_back(sub.name);
    for (const Argument& argument : command.arguments) {
      if (argument.flags.empty()) {
        positional.insert(positional.end(), argument.values.begin(), argument.values.end());
        files = files || argument.values.empty();
      }
      for (const std::string& flag : argument.flags) {
        options.push_back(flag);
        if (argument.takes_value) takes += flag + " ";
        if (argument.many) many += flag + " ";
        if (!argument.values.empty())
          values += fmt::format("    {}) values=({}) files=no ;;\n", single_quoted(command.path + " " + flag),
                                joined(argument.values, " ", single_quoted));
      }
    }
    levels += fmt::format(
        "    {})\n      commands=({})\n      options=({})\n      values=({})\n"
        "      takes={} many={} files={} ;;\n",
        single_quoted(command.path), joined(commands, " ", single_quoted), joined(options, " ", single_quoted),
        joined(positional, " ", single_quoted), single_quoted(takes), single_quoted(many), files ? "yes" : "no");
  });
  std::string script =
      "# Completion of @P@ for bash.\n\n# What may follow a command.\n@F@_level() {\n  case \"$1\" in\n" + levels +
      "  esac\n}\n\n# The values of an option.\n@F@_values() {\n  case \"$1\" in\n" + values +
      "    *) ;;\n  esac\n}\n" + std::string(kBashMain);
  replace_all(script, "@F@", "_" + identifier(root.name));
  replace_all(script, "@P@", root.name);
  return script;
}

// zsh --------------------------------------------------------------------------------------------------

constexpr std::string_view kZshHelpSpecial = "\\[]:$`";

std::string zsh_values(const Argument& argument) {
  const auto word = [](const std::string& text) { return backslashed_word(text); };
  if (argument.values.empty()) return "_files";
  const bool opens = std::any_of(argument.values.begin(), argument.values.end(),
                                 [](const std::string& value) { return value.ends_with('='); });
  return opens ? fmt::format("{{compadd -S \"\" -- {}}}", joined(argument.values, " ", word))
               : fmt::format("({})", joined(argument.values, " ", word));
}

Words zsh_specs(const Argument& argument) {
  const std::string name = backslashed(argument.name, kZshHelpSpecial);
  const std::string value = fmt::format(":{}:{}", name, zsh_values(argument));
  if (argument.flags.empty())
    return {single_quoted((argument.many ? "*" : argument.may_lack_value ? ":" : "") + value)};
  Words specs;
  for (const std::string& flag : argument.flags) {
    std::string spec;
    if (argument.many) spec = "*";
    else if (argument.flags.size() > 1) spec = fmt::format("({})", fmt::join(argument.flags, " "));
    spec += flag;
    if (argument.takes_value) {
      // "-" after "=" says that the value is there only when it is glued to the option.
      spec += flag.starts_with("--") ? "=" : "+";
      if (argument.may_lack_value && flag.starts_with("--")) spec += '-';
    }
    spec += fmt::format("[{}]", backslashed(argument.help, kZshHelpSpecial));
    if (argument.takes_value) spec += (argument.may_lack_value ? ":" : "") + value;
    specs.push_back(single_quoted(spec));
  }
  return specs;
}

void append_zsh_function(const Command& command, std::string& script) {
  for (const Command& sub : command.commands) append_zsh_function(sub, script);
  const std::string function = "_" + identifier(command.path);
  script += function + "() {\n  local context state state_descr line\n  typeset -A opt_args\n  _arguments -S -C";
  for (const Argument& argument : command.arguments)
    for (const std::string& spec : zsh_specs(argument)) script += " \\\n    " + spec;
  if (command.commands.empty()) {
    script += "\n}\n\n";
    return;
  }
  script +=
      " \\\n    '1: :->command' '*:: :->arguments'\n  case \"$state\" in\n    command)\n      local -a commands=(\n";
  for (const Command& sub : command.commands)
    script += fmt::format("        {}\n", single_quoted(backslashed(sub.name, ":\\") + ":" + sub.help));
  script += "      )\n      _describe -t commands command commands ;;\n    arguments)\n      case \"$words[1]\" in\n";
  for (const Command& sub : command.commands)
    script += fmt::format("        {}) _{} ;;\n", sub.name, identifier(sub.path));
  script += "      esac ;;\n  esac\n}\n\n";
}

std::string zsh_script(const Command& root) {
  std::string script = fmt::format("#compdef {0}\n# Completion of {0} for zsh.\n\n", root.name);
  append_zsh_function(root, script);
  // Found on $fpath the file is the body of the function; sourced it only declares it.
  return script + fmt::format("if [[ \"$funcstack[1]\" == _{0} ]]; then _{0} \"$@\"; else compdef _{0} {1}; fi\n",
                              identifier(root.name), root.name);
}

// fish -------------------------------------------------------------------------------------------------

std::string fish_script(const Command& root) {
  const std::string at = "__" + identifier(root.name) + "_at";
  const auto word = [](const std::string& text) { return backslashed_word(text); };
  Words paths, takes;
  std::string lines;
  visit_all(root, [&](const Command& command) {
    const std::string start =
        fmt::format("complete -c {} -n {}", root.name, fish_quoted(fmt::format("{} {}", at, command.path)));
    bool files = false;
    for (const Command& sub : command.commands) {
      paths.push_back(sub.path);
      lines += fmt::format("{} -a {} -d {}\n", start, sub.name, fish_quoted(sub.help));
    }
    for (const Argument& argument : command.arguments) {
      const std::string values = fish_quoted(joined(argument.values, " ", word));
      if (argument.flags.empty()) {
        files = files || argument.values.empty();
        if (!argument.values.empty())
          lines += fmt::format("{} -a {} -d {}\n", start, values, fish_quoted(argument.help));
        continue;
      }
      lines += start;
      for (const std::string& flag : argument.flags) {
        const bool is_long = flag.starts_with("--");
        lines += fmt::format(" {} {}", is_long ? "-l" : "-s", flag.substr(is_long ? 2 : 1));
        if (argument.takes_value) takes.push_back(command.path + " " + flag);
      }
      if (argument.takes_value) lines += argument.values.empty() ? " -r -F" : " -x -a " + values;
      lines += fmt::format(" -d {}\n", fish_quoted(argument.help));
    }
    if (!files) lines += start + " -f\n";
  });
  // `case` without a word would be an error, so both lists carry one that never matches.
  paths.emplace_back("-");
  takes.emplace_back("-");
  return fmt::format(R"fish(# Completion of {0} for fish.

function {1} --description 'whether the words before the cursor have reached this command'
    set -l path {0}
    set -l pending no
    for word in (commandline -opc)[2..-1]
        if test $pending = yes; and not string match -q -- '-*' $word
            set pending no
            continue
        end
        set pending no
        switch "$path $word"
            case {2}
                set path "$path $word"
            case {3}
                set pending yes
        end
    end
    test "$path" = "$argv"
end

{4})fish",
                     root.name, at, joined(paths, " ", fish_quoted), joined(takes, " ", fish_quoted), lines);
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell, const CompletionWords& words) {
  const std::string name = app.get_name().empty() ? "xformer" : app.get_name();
  const Command root = read_command(app, name, name, words);
  if (shell == "bash") return bash_script(root);
  if (shell == "zsh") return zsh_script(root);
  XF_CHECK(shell == "fish", UserError, "{}", unknown_name_message("shell", shell, {"bash", "fish", "zsh"}));
  return fish_script(root);
}

}  // namespace xformer::cli
