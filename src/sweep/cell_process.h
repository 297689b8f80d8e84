// One attempt at a cell: a process of its own that holds the cell's claim for as long as it lives.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"

namespace xformer::sweep {

// How a process ended.
struct Ending {
  int exit_code = 0;  // of one that ended by itself
  int signal = 0;     // else what ended it
};

// Whether somebody else ended it, a person or the system, and nothing that it did.
[[nodiscard]] bool ended_from_outside(const Ending& ending);

class CellProcess {
 public:
  // Starts command[0] in a process group of its own. Its output is added to the file `output`; it inherits `claim`, a
  // descriptor that holds a lock: the lock ends when this process and the sweep have both let go of it. ResourceError.
  CellProcess(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
              const Path& output, int claim);

  [[nodiscard]] int id() const { return id_; }
  // Nothing while it runs.
  [[nodiscard]] std::optional<Ending> ended();
  void send(int signal) const;

 private:
  int id_ = -1;
  std::optional<Ending> ending_;
};

// How often the system has killed processes for want of memory; 0 where it does not tell.
[[nodiscard]] int64_t out_of_memory_kills();

}  // namespace xformer::sweep
