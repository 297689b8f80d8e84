// What may follow some words of a command line, and the scripts by which shells ask.
#include "cli/completion.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "core/error.h"
#include "core/names.h"
#include "core/option_names.h"

namespace xformer::cli {
namespace {

using Words = std::vector<std::string>;

std::string text(const Json& json, const char* key) { return json[key].get<std::string>(); }

// The words so far: the command they have reached, the option that waits for a value, what was said of the plan.
struct Place {
  const Json* commands = nullptr;  // that may follow
  const Json* options = nullptr;   // none before the first verb
  std::string path;                // "data fetch"
  const Json* pending = nullptr;
  std::string model, task;
};

const Json* option_of(const Place& place, const std::string& flag) {
  if (place.options == nullptr) return nullptr;
  for (const Json& option : *place.options)
    if (std::find(option["flags"].begin(), option["flags"].end(), flag) != option["flags"].end()) return &option;
  return nullptr;
}

bool is_flag(const Json& option, const char* flag) {
  return std::find(option["flags"].begin(), option["flags"].end(), flag) != option["flags"].end();
}

// The first of several names separated by commas decides what is offered.
std::string first_name(const std::string& names) { return names.substr(0, names.find(',')); }

void remember(const std::string& flag, const std::string& value, Place& place) {
  if (flag == "--model" || flag == "model") place.model = first_name(value);
  if (flag == "--task" || flag == "task") place.task = first_name(value);
}

Place place_of(const Json& catalogue, const Words& words) {
  Place place;
  place.commands = &catalogue["verbs"];
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    const size_t equals = word.find('=');
    if (word.starts_with('-')) {
      const Json* const option = option_of(place, word.substr(0, equals));
      place.pending =
          option != nullptr && (*option)["takes"].get<bool>() && equals == std::string::npos ? option : nullptr;
      if (equals != std::string::npos) remember(word.substr(0, equals), word.substr(equals + 1), place);
    } else if (place.pending != nullptr) {
      for (const Json& flag : (*place.pending)["flags"]) remember(flag.get<std::string>(), word, place);
      if (!(*place.pending)["many"].get<bool>()) place.pending = nullptr;
    } else if (equals != std::string::npos) {
      remember(word.substr(0, equals), word.substr(equals + 1), place);
    } else {
      const auto found = std::find_if(place.commands->begin(), place.commands->end(),
                                      [&](const Json& command) { return command["name"] == word; });
      if (found == place.commands->end()) continue;
      place.path += (place.path.empty() ? "" : " ") + word;
      place.options = &(*found)["options"];
      place.commands = &(*found)["commands"];
    }
  }
  return place;
}

void add_names(const Json& entries, std::vector<Offer>& into) {
  for (const Json& entry : entries) {
    const std::string name = text(entry, "name");
    if (name.ends_with("<name>")) continue;  // stands for any
    into.push_back({name, text(entry, "title")});
    for (const Json& alias : entry["aliases"]) into.push_back({alias.get<std::string>(), "is " + name});
  }
}

const Json* entry_of(const Json& entries, const std::string& name) {
  for (const Json& entry : entries)
    if (canonical_name(text(entry, "name")) == canonical_name(name) ||
        std::find(entry["aliases"].begin(), entry["aliases"].end(), canonical_name(name)) != entry["aliases"].end())
      return &entry;
  return nullptr;
}

std::vector<Offer> model_names(const Json& catalogue, const std::string& typed) {
  std::vector<Offer> result;
  const size_t slash = typed.find('/');
  if (slash == std::string::npos)
    for (const char* kind : {"attentions", "models", "whole_models"}) add_names(catalogue[kind], result);
  else if (entry_of(catalogue["models"], typed.substr(0, slash)) != nullptr) add_names(catalogue["attentions"], result);
  if (slash != std::string::npos)
    for (Offer& offer : result) offer.word.insert(0, typed.substr(0, slash + 1));
  return result;
}

std::vector<Offer> protocol_names(const Json& catalogue, const Place& place) {
  std::vector<Offer> result;
  if (const Json* const task = entry_of(catalogue["tasks"], place.task)) {
    for (const Json& protocol : (*task)["protocols"])
      result.push_back({text(protocol, "name"), text(protocol, "summary")});
    return result;
  }
  for (const Json& term : catalogue["terms"])
    if (term["kind"] == "protocol") result.push_back({text(term, "name"), text(term, "title")});
  return result;
}

// Options of what was named, and of everything where nothing was.
std::map<std::string, const Json*> options_of_plan(const Json& catalogue, const Place& place) {
  std::map<std::string, const Json*> result;
  const auto take = [&](const Json& entry) {
    for (const Json& option : entry["options"]) result.emplace(text(option, "name"), &option);
  };
  const auto take_all = [&](const char* kind) {
    for (const Json& entry : catalogue[kind]) take(entry);
  };
  take_all("groups");
  const Json* const task = entry_of(catalogue["tasks"], place.task);
  if (task != nullptr) take(*task);
  else take_all("tasks");
  const size_t slash = place.model.find('/');
  const std::string attention = place.model.substr(slash == std::string::npos ? 0 : slash + 1);
  std::string family = slash != std::string::npos ? place.model.substr(0, slash)
                       : task != nullptr          ? text(*task, "family")
                                                  : "";
  if (const Json* const whole = entry_of(catalogue["whole_models"], place.model)) {
    take(*whole);
    return result;
  }
  if (entry_of(catalogue["models"], place.model) != nullptr) family = place.model;
  if (const Json* const found = entry_of(catalogue["models"], family)) take(*found);
  else take_all("models");
  if (const Json* const found = entry_of(catalogue["attentions"], attention)) take(*found);
  else if (place.model.empty() || family != place.model) take_all("attentions");
  return result;
}

std::vector<Offer> settings(const Json& catalogue, const Place& place, const std::string& typed) {
  std::vector<Offer> result;
  const auto options = options_of_plan(catalogue, place);
  const size_t equals = typed.find('=');
  if (equals == std::string::npos) {
    for (const auto& [key, option] : options) result.push_back({key + "=", text(*option, "help")});
    return result;
  }
  const std::string word = typed.substr(0, equals), usual = usual_option(word);
  const auto found = options.find(options.contains(word) ? word : usual);
  if (found == options.end()) return {};
  Json values = (*found->second)["choices"];
  if ((*found->second)["type"] == "bool") values = {"true", "false"};
  for (const Json& value : values) result.push_back({word + "=" + value.get<std::string>(), ""});
  return result;
}

// The last of several names separated by commas, each once more with those before it.
std::vector<Offer> in_list(std::vector<Offer> offers, const std::string& typed) {
  const size_t comma = typed.rfind(',');
  if (comma != std::string::npos)
    for (Offer& offer : offers) offer.word.insert(0, typed.substr(0, comma + 1));
  return offers;
}

std::optional<std::vector<Offer>> values_of(const Json& option, const Json& catalogue, const Place& place,
                                            const std::string& typed) {
  std::vector<Offer> result;
  const std::string last = typed.substr(typed.rfind(',') + 1);  // npos + 1 is 0
  for (const Json& choice : option["choices"]) result.push_back({choice.get<std::string>(), ""});
  if (!result.empty()) return in_list(result, typed);
  const std::string name = text(option, "name");
  for (const char* flag : {"--model", "--models", "--core", "--mixer"})
    if (is_flag(option, flag)) return in_list(model_names(catalogue, last), typed);
  if (is_flag(option, "--protocol")) return protocol_names(catalogue, place);
  if (is_flag(option, "--set") || name == "SETTING") return settings(catalogue, place, typed);
  if (is_flag(option, "--device")) return {{{"auto", ""}, {"cpu", ""}, {"cuda", ""}, {"cuda:0", ""}}};
  if (is_flag(option, "--split")) return {{{"train", ""}, {"dev", ""}, {"test", ""}}};
  if (is_flag(option, "--task") || (name == "NAME" && place.path.starts_with("data "))) {
    Json tasks = Json::array();
    for (const Json& task : catalogue["tasks"])
      if (place.path != "data fetch" || task.value("fetch", true)) tasks.push_back(task);
    add_names(tasks, result);
    return in_list(result, typed);
  }
  if (name == "NAME") {
    for (const char* kind : {"attentions", "models", "whole_models", "tasks", "groups", "terms"})
      add_names(catalogue[kind], result);
    std::erase_if(result, [](const Offer& offer) { return offer.word.find(' ') != std::string::npos; });  // two words
    return result;
  }
  if (name == "COMMAND") {
    for (const Json& verb : catalogue["verbs"]) result.push_back({text(verb, "name"), text(verb, "help")});
    return result;
  }
  return std::nullopt;
}

}  // namespace

Offers complete(const Json& catalogue, const std::vector<std::string>& words) {
  const std::string typed = words.empty() ? "" : words.back();
  Place place = place_of(catalogue, words);
  Offers offers;
  const auto offer = [&](const Json& option, const std::string& before, const std::string& value) {
    if (const auto values = values_of(option, catalogue, place, value))
      for (const Offer& one : *values) offers.words.push_back({before + one.word, one.help});
    else offers.files = true;
  };
  const size_t equals = typed.find('=');
  if (typed.starts_with('-') && equals != std::string::npos) {
    if (const Json* const option = option_of(place, typed.substr(0, equals)))
      offer(*option, typed.substr(0, equals + 1), typed.substr(equals + 1));
  } else if (typed.starts_with('-')) {
    if (place.options == nullptr) offers.words = {{"--help", ""}, {"--version", ""}};
    else
      for (const Json& option : *place.options)
        for (const Json& flag : option["flags"])
          offers.words.push_back({flag.get<std::string>(), text(option, "help")});
  } else if (place.pending != nullptr) {
    offer(*place.pending, "", typed);
  } else {
    for (const Json& command : *place.commands) offers.words.push_back({text(command, "name"), text(command, "help")});
    if (place.options != nullptr)
      for (const Json& option : *place.options)
        if (option["flags"].empty() && (!typed.empty() || option["name"] != "SETTING")) offer(option, "", typed);
  }
  std::erase_if(offers.words, [&](const Offer& one) { return !one.word.starts_with(typed); });
  return offers;
}

namespace {

// Each asks `PROGRAM complete WORD...`: a word a line, a tab and its help; ":files" where file names may stand.
constexpr const char* kBash = R"bash(# Completion of xformer for bash.
_xformer() {
  local line="${COMP_LINE:0:COMP_POINT}" cut='' word
  local -a words=()
  read -ra words <<<"$line"
  [[ $line == *[[:blank:]] ]] && words+=('')
  # bash takes what stands behind the last of these for a word of its own.
  [[ ${words[-1]} == *[=:]* ]] && cut="${words[-1]%"${words[-1]##*[=:]}"}"
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    if [[ $word == ':files' ]]; then compopt -o default 2>/dev/null; else COMPREPLY+=("${word#"$cut"}"); fi
  done < <("${words[0]/#\~/$HOME}" complete "${words[@]:1}" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
  return 0
}
complete -F _xformer xformer
)bash";

constexpr const char* kZsh = R"zsh(#compdef xformer
# Completion of xformer for zsh.
_xformer() {
  local line word
  local -a whole begun
  for line in "${(@f)$("${words[1]/#\~/$HOME}" complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    word="${line%%$'\t'*}"
    if [[ -z $word ]]; then
      continue
    elif [[ $word == ':files' ]]; then
      [[ $PREFIX == -*=* ]] && compset -P '*='
      _files
    elif [[ $word == *= ]]; then
      begun+=("$word")
    else
      whole+=("$word")
    fi
  done
  (( ${#begun} )) && compadd -S '' -- "${begun[@]}"
  (( ${#whole} )) && compadd -- "${whole[@]}"
}
# Found on $fpath the file is the body of the function; sourced it only declares it.
if [[ "$funcstack[1]" == _xformer ]]; then
  _xformer "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
  compdef _xformer xformer
fi
)zsh";

constexpr const char* kFish = R"fish(# Completion of xformer for fish.
function __xformer_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] complete $words[2..-1] 2>/dev/null)
        if test "$line" = ':files'
            __fish_complete_path (string replace -r '^-.*=' '' -- $words[-1])
        else
            printf '%s\n' $line
        end
    end
end
complete -c xformer -f -a '(__xformer_complete)'
)fish";

}  // namespace

std::string completion_script(const std::string& shell) {
  static const std::map<std::string, const char*> kScripts{{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
  const auto found = kScripts.find(shell);
  XF_CHECK(found != kScripts.end(), UserError, "{}", unknown_name_message("shell", shell, {"bash", "fish", "zsh"}));
  return found->second;
}

}  // namespace xformer::cli
