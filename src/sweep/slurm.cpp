#include "sweep/slurm.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>

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

}  // namespace

std::string slurm_script(const SlurmJob& job) {
  std::vector<std::string> words;
  for (const std::string& word : job.command) words.push_back(shell_word(word));
  // sbatch takes these lines apart as a shell would.
  std::string text = fmt::format(
      "#!/bin/bash\n#SBATCH {}\n#SBATCH --array=0-{}%{}\n#SBATCH --requeue\n"
      "#SBATCH --open-mode=append\n#SBATCH {}\n#SBATCH --signal=B:TERM@{}\n",
      shell_word("--job-name=xformer-" + job.name), job.cells.size() - 1, job.jobs,
      shell_word("--output=" + without_patterns(job.out.string()) + "/slurm-%A_%a.log"), kNotice);
  for (const std::string& option : job.options) text += fmt::format("#SBATCH {}\n", option);
  text += fmt::format("cells=({})\n", fmt::join(job.cells, " "));
  // The shell gets the signal: it hands it on, waits until the cell has saved, and has the task queued again, unless a
  // person cancelled it: then it no longer runs, and was not preempted.
  text += fmt::format("{} --cell \"${{cells[$SLURM_ARRAY_TASK_ID]}}\" &\n", fmt::join(words, " "));
  text +=
      "child=$!\n"
      "trap 'kill -TERM $child' TERM INT\n"
      "wait $child; code=$?\n"
      "while kill -0 $child 2>/dev/null; do wait $child; code=$?; done\n"
      "task=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\n"
      "if [ $code -eq 6 ]; then\n"
      "  case $(scontrol --oneliner show job $task) in\n"
      "    *JobState=RUNNING*|*PreemptTime=[0-9]*) scontrol requeue $task ;;\n"
      "  esac\n"
      "fi\n"
      "exit $code\n";
  return text;
}

int64_t submit(const std::string& script) {
  const Path file = std::filesystem::temp_directory_path() / fmt::format("xformer-sbatch-{}", ::getpid());
  write_file_atomically(file, script);
  const Answer answer = ask_shell("sbatch --parsable " + shell_word(file.string()));
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
  std::map<int64_t, std::vector<std::string>> jobs;
  for (const Json& entry : journal.entries())
    if (entry["event"] == "submitted") jobs[entry.value("job", int64_t{0})] = entry["cells"];
  std::set<std::string> result;
  for (const auto& [job, cells] : jobs) {
    // Array tasks one by one; a job that has left the queue's memory is an error, and queued no more.
    const Answer answer = ask_shell(fmt::format("squeue --noheader --array --format=%K --jobs={}", job));
    if (answer.status != 0) continue;
    for (const std::string_view line : split(answer.text, '\n')) {
      size_t index = 0;
      const std::string_view number = trim(line);
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
      if (error == std::errc() && index < cells.size()) result.insert(cells[index]);
    }
  }
  return result;
}

}  // namespace xformer::sweep
