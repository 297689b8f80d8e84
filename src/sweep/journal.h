// What a sweep did: one synced line of JSON for everything that began or ended, never changed afterwards.
//
//   {"time": "2026-11-21T07:16:30Z", "event": "started", "cell": "0123456789abcdef-2", "label": ..., "attempt": 1, ...}
//   {"time": ..., "event": "ended", "cell": ..., "attempt": 1, "status": "completed", "exit": 0, "seconds": 63.2}
//
// Several sweeps may write to one journal. A line that a crash tore is passed over.
#pragma once

#include <map>

#include "core/json_file.h"

namespace xformer::sweep {

// What the journal knows of a cell.
struct CellHistory {
  int64_t attempts = 0;     // that were started
  int64_t failures = 0;     // attempts that ended as "failed"
  int64_t kills = 0;        // attempts that were killed from outside
  int64_t micro_batch = 0;  // after running out of memory; 0: as the plan says
  bool completed = false;
  std::string gave_up;  // the status that it was left with: failed, diverged, out-of-memory; or ""
  std::string message;  // why
  double seconds = 0;   // of all attempts that ended
};

class Journal {
 public:
  explicit Journal(const Path& path);
  // Adds the time, and waits for the disk.
  void write(Json entry);
  // By cell, from all that is written until now.
  [[nodiscard]] std::map<std::string, CellHistory> histories() const;
  // Every whole line, in order.
  [[nodiscard]] std::vector<Json> entries() const;

 private:
  Path path_;
  AppendFile file_;
};

}  // namespace xformer::sweep
