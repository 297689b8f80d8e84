#include "sweep/slurm.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/text.h"

namespace xformer::sweep {

namespace {

// Seconds before the end of a task's time in which its cell saves.
constexpr int kNotice = 120;

struct Answer {
  int status = 0;
  std::string text;  // stdout and stderr
};

Answer ask_shell(const std::string& command) {
  Answer answer;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  XF_CHECK(pipe != nullptr, ResourceError, "cannot start a shell: {}", std::strerror(errno));
  char buffer[4096];
  for (size_t count = 0; (count = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) answer.text.append(buffer, count);
  answer.status = ::pclose(pipe);
  return answer;
}

// What Slurm takes for this text where it fills in %A and the like.
std::string without_patterns(const std::string& text) {
  std::string result;
  for (const char letter : text) result += letter == '%' ? std::string("%%") : std::string(1, letter);
  return result;
}

// The number that a text begins with, before anything else that is no digit.
std::optional<int64_t> leading_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

bool is_given(const SlurmJob& job, std::initializer_list<std::string_view> options) {
  return std::any_of(job.options.begin(), job.options.end(), [&](const std::string& given) {
    return std::any_of(options.begin(), options.end(), [&](std::string_view name) { return given.starts_with(name); });
  });
}

}  // namespace

int64_t SlurmJob::tasks() const { return (static_cast<int64_t>(cells.size()) + cells_per_task - 1) / cells_per_task; }

std::vector<SlurmJob> in_arrays_of(const SlurmJob& job, int64_t tasks) {
  std::vector<SlurmJob> result;
  const auto step = static_cast<size_t>(tasks * job.cells_per_task);
  for (size_t from = 0; from < job.cells.size(); from += step) {
    result.push_back(job);
    result.back().cells.assign(
        job.cells.begin() + static_cast<std::ptrdiff_t>(from),
        job.cells.begin() + static_cast<std::ptrdiff_t>(std::min(from + step, job.cells.size())));
  }
  return result;
}

int64_t most_tasks() {
  constexpr int64_t kDefault = 1001;
  constexpr std::string_view kKey = "MaxArraySize";
  const Answer answer = ask_shell("scontrol show config");
  for (const std::string_view line : split(answer.text, '\n'))
    if (answer.status == 0 && line.starts_with(kKey))
      if (const auto number = leading_number(trim(line.substr(line.find('=') + 1))))
        return std::max<int64_t>(*number, 1);
  return kDefault;
}

std::string slurm_script(const SlurmJob& job) {
  std::vector<std::string> words;
  for (const std::string& word : job.command) words.push_back(shell_word(word));
  // sbatch takes these lines apart as a shell would.
  std::string text = fmt::format(
      "#!/bin/bash\n#SBATCH {}\n#SBATCH --array=0-{}%{}\n#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n#SBATCH {}\n#SBATCH --signal=B:TERM@{}\n",
      shell_word("--job-name=xformer-" + job.name), job.tasks() - 1, job.jobs,
      shell_word("--output=" + without_patterns(job.out.string()) + "/slurm-%A_%a.log"), kNotice);
  if (job.threads > 0 && !is_given(job, {"--cpus-per-task", "-c", "--exclusive"}))
    text += fmt::format("#SBATCH --cpus-per-task={}\n", job.threads);
  if (job.memory > 0 && !is_given(job, {"--mem", "--exclusive"}))
    text += fmt::format("#SBATCH --mem={}M\n", (job.memory + (1 << 20) - 1) >> 20);
  for (const std::string& option : job.options) text += fmt::format("#SBATCH {}\n", option);
  for (const std::string& line : job.setup) text += line + "\n";
  text += fmt::format("cells=({})\n", fmt::join(job.cells, " "));
  // The shell gets the signal: it hands it on, waits until the cell has saved, and has the task queued again, unless a
  // person cancelled it: then it no longer runs, and was not preempted.
  text += fmt::format(
      "code=0 child= stop=\n"
      "trap 'stop=1; [ -z \"$child\" ] || kill -TERM $child' TERM INT\n"
      "for cell in \"${{cells[@]:$((SLURM_ARRAY_TASK_ID * {0})):{0}}}\"; do\n"
      "  [ -z \"$stop\" ] || {{ code=6; break; }}\n"
      "  {1} --cell \"$cell\" &\n",
      job.cells_per_task, fmt::join(words, " "));
  text +=
      "  child=$!\n"
      "  wait $child; one=$?\n"
      "  while kill -0 $child 2>/dev/null; do wait $child; one=$?; done\n"
      "  child=\n"
      "  [ $one -eq 0 ] || code=$one\n"
      "  [ $one -ne 6 ] || break\n"
      "done\n"
      "task=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\n"
      "if [ $code -eq 6 ]; then\n"
      "  case $(scontrol --oneliner show job $task) in\n"
      "    *JobState=RUNNING*|*PreemptTime=[0-9]*) scontrol requeue $task ;;\n"
      "  esac\n"
      "fi\n"
      "exit $code\n";
  return text;
}

int64_t submit(const std::string& script, int64_t after) {
  const Path file = std::filesystem::temp_directory_path() / fmt::format("xformer-sbatch-{}", ::getpid());
  write_file_atomically(file, script);
  const std::string dependency = after > 0 ? fmt::format("--dependency=afterany:{} ", after) : "";
  const Answer answer = ask_shell("sbatch --parsable " + dependency + shell_word(file.string()));
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  const std::string_view text = trim(answer.text);
  int64_t job = 0;
  // "NUMBER" or "NUMBER;CLUSTER", in a line of its own: warnings may stand around it.
  for (const std::string_view line : split(text, '\n')) {
    int64_t number = 0;
    const char* const last = line.data() + line.size();
    const auto [end, error] = std::from_chars(line.data(), last, number);
    if (error == std::errc() && (end == last || *end == ';')) job = number;
  }
  XF_CHECK(answer.status == 0 && job > 0, ResourceError, "sbatch did not take the job: {}",
           text.empty() ? "it said nothing" : text);
  return job;
}

std::set<std::string> queued_cells(const Journal& journal) {
  struct Submitted {
    std::vector<std::string> cells;
    size_t per_task;
  };
  std::map<int64_t, Submitted> jobs;
  for (const Json& entry : journal.entries())
    if (entry["event"] == "submitted")
      jobs[entry.value("job", int64_t{0})] = {entry["cells"], entry.value("cells_per_task", size_t{1})};
  std::set<std::string> result;
  for (const auto& [job, submitted] : jobs) {
    // Array tasks one by one; a job that has left the queue's memory is an error, and queued no more.
    const Answer answer = ask_shell(fmt::format("squeue --noheader --array --format=%K --jobs={}", job));
    if (answer.status != 0) continue;
    for (const std::string_view line : split(answer.text, '\n')) {
      const auto task = leading_number(trim(line));
      for (size_t i = 0; task && i < submitted.per_task; ++i)
        if (const size_t index = static_cast<size_t>(*task) * submitted.per_task + i; index < submitted.cells.size())
          result.insert(submitted.cells[index]);
    }
  }
  return result;
}

}  // namespace xformer::sweep
