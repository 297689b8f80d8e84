// Completion scripts for bash, zsh and fish, generated from the option tree of the command line itself.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace xformer::cli {

// The values worth offering: by long option ("--model") or by the name of a positional argument ("NAME").
// A value that ends in '=' ("attention.projected_length=") is completed without a space after it.
// Options that are not in the map take file names.
using CompletionWords = std::map<std::string, std::vector<std::string>>;

// `shell` is bash, zsh or fish; anything else is a UserError. Hidden options and commands are left out.
[[nodiscard]] std::string completion_script(const CLI::App& app, const std::string& shell,
                                            const CompletionWords& words);

}  // namespace xformer::cli
