// Completion: the shells ask the program itself (`xformer complete WORD...`) what may follow the words so far, so one
// place knows, and tasks, models and options that were typed before decide what is offered.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace CLI {
class App;
}

namespace xformer::cli {

// The verbs below a command, for the catalogue: [{"name", "help", "options": [{"flags", "name", "help", "takes",
// "may_lack", "many", "choices"}], "commands"}]. An option without flags is an argument. Hidden ones are left out.
[[nodiscard]] Json command_tree(const CLI::App& app);

struct Offer {
  std::string word, help;
  bool operator==(const Offer&) const = default;
};
struct Offers {
  std::vector<Offer> words;  // as the whole word would be; one that ends in '=' or '/' goes on
  bool files = false;        // file names may follow, which the shell knows
};
// `words`: behind the program's name; the last is being typed, "" where nothing is there yet.
[[nodiscard]] Offers complete(const Json& catalogue, const std::vector<std::string>& words);

// For bash, zsh or fish; UserError for another.
[[nodiscard]] std::string completion_script(const std::string& shell);

}  // namespace xformer::cli
