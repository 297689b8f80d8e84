#include "engine/sweep_view.h"

#include <unistd.h>

#include <algorithm>

#include "core/text.h"

namespace xformer::engine {

using namespace cli;

SweepView::SweepView(bool quiet) : quiet_(quiet), line_(terminal_options(STDERR_FILENO)) {}

void SweepView::on_message(const std::string& line) {
  if (!quiet_) line_.print(line);
}

void SweepView::on_progress(const sweep::SweepProgress& progress) {
  if (quiet_) return;
  std::string text = fmt::format("{}/{} cells", progress.completed, progress.cells);
  if (progress.failed > 0) text += fmt::format(", {} failed", progress.failed);
  if (progress.elsewhere > 0) text += fmt::format(", {} elsewhere", progress.elsewhere);
  if (progress.seconds_left >= 0) text += fmt::format(", {} left", format_duration(progress.seconds_left));
  for (const sweep::RunningCell& one : progress.running) {
    const std::string steps = one.steps > 0 ? "/" + format_count(static_cast<uint64_t>(one.steps)) : "";
    text += fmt::format("  [{} step {}{}]", one.label, format_count(static_cast<uint64_t>(one.step)), steps);
  }
  const double ended = static_cast<double>(progress.completed + progress.failed);
  line_.update(text, ended / static_cast<double>(std::max<int64_t>(progress.cells, 1)));
}

}  // namespace xformer::engine
