#include "sweep/journal.h"

#include "core/text.h"
#include "training/record.h"

namespace xformer::sweep {

Journal::Journal(const Path& path) : path_(path), file_(path) {
  const std::string text = read_file(path_);
  if (!text.empty() && text.back() != '\n') file_.write("\n");  // what a crash tore must not swallow the next line
}

void Journal::write(Json entry) {
  Json line{{"time", training::utc_now()}};
  line.update(entry);
  file_.write(line.dump() + "\n");
  file_.sync();
}

std::vector<Json> Journal::entries() const {
  std::vector<Json> result;
  const std::string text = read_file(path_);
  for (const std::string_view line : split(text, '\n')) {
    Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_object() && entry.contains("event")) result.push_back(std::move(entry));
  }
  return result;
}

std::map<std::string, CellHistory> Journal::histories() const {
  std::map<std::string, CellHistory> result;
  for (const Json& entry : entries()) {
    const std::string cell = entry.value("cell", ""), event = entry["event"];
    if (cell.empty()) continue;
    CellHistory& history = result[cell];
    const std::string status = entry.value("status", "");
    if (event == "started") {
      ++history.attempts;
      history.gave_up.clear();
    } else if (event == "ended") {
      history.seconds += entry.value("seconds", 0.0);
      history.failures += status == "failed" ? 1 : 0;
      history.kills += status == "killed" ? 1 : 0;
      history.completed |= status == "completed";
      history.message = entry.value("message", "");
      history.micro_batch = entry.value("next_micro_batch", history.micro_batch);
    } else if (event == "found") {
      history.completed = true;
    } else if (event == "gave up") {
      history.gave_up = status;
      history.message = entry.value("message", history.message);
    } else if (event == "again") {  // asked for by a person: what failed before no longer counts
      history.failures = history.kills = 0;
      history.gave_up.clear();
    }
  }
  return result;
}

}  // namespace xformer::sweep
