// Slurm jobs without a Slurm: the script run by a shell as a task would, and what sbatch, scontrol and squeue are
// asked, each replaced by a script of a few lines.
#include "sweep/slurm.h"

#include <catch2/catch.hpp>

#include "scratch.h"

namespace xformer::sweep_test {

using namespace xformer::sweep;
using Catch::Matchers::Contains;

// A folder of commands that come before the system's.
class Commands {
 public:
  Commands() : path_("PATH", (folder_.path().string() + ":" + std::getenv("PATH")).c_str()) {}
  void put(const std::string& name, const std::string& lines) const {
    scratch::put(folder_ / name, "#!/bin/bash\n" + lines + "\n");
    std::filesystem::permissions(folder_ / name, std::filesystem::perms(0755));
  }
  [[nodiscard]] std::string log() const { return scratch::get(folder_ / "log"); }
  [[nodiscard]] Path operator/(const std::string& name) const { return folder_ / name; }

 private:
  scratch::Folder folder_;
  scratch::Variable path_;
};

SlurmJob job_of(const std::vector<std::string>& cells) {
  SlurmJob job;
  job.name = "table";
  job.out = "/runs";
  job.command = {"cell"};
  job.cells = cells;
  return job;
}

// The exit code of the script as array task `task` of job 9; "cell" writes its arguments to the log.
int run_task(const Commands& commands, const SlurmJob& job, int task) {
  scratch::put(commands / "job", slurm_script(job));
  const std::string line =
      fmt::format("SLURM_ARRAY_JOB_ID=9 SLURM_ARRAY_TASK_ID={} bash {}", task, (commands / "job").string());
  const int status = std::system(line.c_str());
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("a task runs its cells in turn, after the lines of set-up, and ends with what went wrong") {
  const Commands commands;
  commands.put("cell", "echo \"$greeting $2\" >>\"${0%/*}/log\"; [[ $2 != c ]] || exit 1");
  SlurmJob job = job_of({"a", "b", "c", "d", "e"});
  job.cells_per_task = 2;
  job.setup = {"export greeting=hello"};
  CHECK(job.tasks() == 3);
  CHECK_THAT(slurm_script(job), Contains("#SBATCH --array=0-2%1\n"));
  CHECK(run_task(commands, job, 0) == 0);
  CHECK(commands.log() == "hello a\nhello b\n");
  CHECK(run_task(commands, job, 1) == 1);  // c failed; d runs all the same
  CHECK(run_task(commands, job, 2) == 0);
  CHECK(commands.log() == "hello a\nhello b\nhello c\nhello d\nhello e\n");
}

TEST_CASE("a task that gets notice hands it on, runs no further cell, and is queued again unless it was cancelled") {
  const Commands commands;
  // As a cell does: saves on TERM and ends with 6. It sends the notice itself, to the shell that started it.
  commands.put(
      "cell", "echo $2 >>\"${0%/*}/log\"; trap 'exit 6' TERM; kill -TERM $PPID; for i in {1..100}; do sleep 0.1; done");
  for (const std::string state : {"JobState=RUNNING", "JobState=CANCELLED"}) {
    commands.put("scontrol", "[[ $1 == --oneliner ]] && echo " + state + " || echo \"$*\" >>\"${0%/*}/log\"");
    SlurmJob job = job_of({"a", "b"});
    job.cells_per_task = 2;
    std::filesystem::remove(commands / "log");
    CHECK(run_task(commands, job, 0) == 6);
    CHECK(commands.log() == (state == "JobState=RUNNING" ? "a\nrequeue 9_0\n" : "a\n"));
  }
}

TEST_CASE("processors and memory are asked for, unless the user's own options do") {
  SlurmJob job = job_of({"a"});
  const std::string plain = slurm_script(job);
  CHECK_THAT(plain, !Contains("--cpus-per-task") && !Contains("--mem"));
  job.threads = 2;
  job.memory = (uint64_t{3} << 30) + 1;
  CHECK_THAT(slurm_script(job), Contains("#SBATCH --cpus-per-task=2\n") && Contains("#SBATCH --mem=3073M\n"));
  job.options = {"--mem-per-cpu=1G", "-c 4"};
  CHECK_THAT(slurm_script(job), !Contains("--cpus-per-task") && !Contains("--mem=") && Contains("#SBATCH -c 4\n"));
}

TEST_CASE("arrays are no longer than Slurm takes them, and each waits for the one before") {
  const Commands commands;
  commands.put("scontrol", "echo 'MaxArraySize            = 2'");
  CHECK(most_tasks() == 2);
  commands.put("scontrol", "exit 1");
  CHECK(most_tasks() == 1001);

  SlurmJob job = job_of({"a", "b", "c", "d", "e", "f", "g"});
  job.cells_per_task = 3;
  const std::vector<SlurmJob> arrays = in_arrays_of(job, 2);
  REQUIRE(arrays.size() == 2);
  CHECK(arrays[0].cells == std::vector<std::string>{"a", "b", "c", "d", "e", "f"});
  CHECK(arrays[1].cells == std::vector<std::string>{"g"});
  CHECK_THAT(slurm_script(arrays[1]), Contains("--array=0-0%1"));

  commands.put("sbatch", "echo \"$1 $2\" | cut -d' ' -f1,2 >>\"${0%/*}/log\"; echo 17");
  CHECK(submit("#!/bin/bash\n", 0) == 17);
  CHECK(submit("#!/bin/bash\n", 16) == 17);
  CHECK_THAT(commands.log(), Contains("--parsable /") && Contains("--parsable --dependency=afterany:16"));
  commands.put("sbatch", "echo no such partition; exit 1");
  CHECK_THROWS_WITH(submit("#!/bin/bash\n", 0), Contains("no such partition"));
}

TEST_CASE(
    "the cells of queued tasks are known, also of tasks with several and of journals from before there were any") {
  const Commands commands;
  commands.put("squeue", "case $* in *--jobs=1) echo 1 ;; *--jobs=2) echo 0; echo 2 ;; *) exit 1 ;; esac");
  Journal journal(commands / "journal.jsonl");
  journal.write({{"event", "submitted"}, {"job", 1}, {"cells", {"a", "b", "c"}}});
  journal.write({{"event", "submitted"}, {"job", 2}, {"cells", {"d", "e", "f", "g", "h"}}, {"cells_per_task", 2}});
  journal.write({{"event", "submitted"}, {"job", 3}, {"cells", {"i"}}});
  CHECK(queued_cells(journal) == std::set<std::string>{"b", "d", "e", "h"});
}

}  // namespace xformer::sweep_test
