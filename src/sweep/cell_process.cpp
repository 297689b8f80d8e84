#include "sweep/cell_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>

#include "core/error.h"

namespace xformer::sweep {

CellProcess::CellProcess(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment,
                         const Path& output, int claim) {
  // All that allocates comes before the fork: after it only the one thread that calls is there.
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (!environment.contains(std::string(text.substr(0, text.find('='))))) variables.emplace_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> variable_pointers;
  for (std::string& variable : variables) variable_pointers.push_back(variable.data());
  variable_pointers.push_back(nullptr);
  const int out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  XF_CHECK(out >= 0, ResourceError, "cannot write {}: {}", output.string(), std::strerror(errno));
  const int in = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  id_ = ::fork();
  if (id_ == 0) {
    ::setpgid(0, 0);  // the sweep decides when its cells stop, not the terminal
    ::fcntl(claim, F_SETFD, 0);
    if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0) _exit(126);
    ::execve(arguments[0], arguments.data(), variable_pointers.data());
    _exit(127);
  }
  const int error = errno;
  ::close(out);
  ::close(in);
  XF_CHECK(id_ > 0, ResourceError, "cannot start a process: {}", std::strerror(error));
}

std::optional<Ending> CellProcess::ended() {
  if (ending_) return ending_;
  int status = 0;
  if (::waitpid(id_, &status, WNOHANG) != id_) return std::nullopt;
  ending_ = WIFSIGNALED(status) ? Ending{0, WTERMSIG(status)} : Ending{WEXITSTATUS(status), 0};
  return ending_;
}

void CellProcess::send(int signal) const {
  if (!ending_) ::kill(id_, signal);
}

bool ended_from_outside(const Ending& ending) {
  return ending.signal == SIGKILL || ending.signal == SIGTERM || ending.signal == SIGINT || ending.signal == SIGHUP;
}

int64_t out_of_memory_kills() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  int64_t count = 0;
  while (file >> name >> count)
    if (name == "oom_kill") return count;
  return 0;
}

}  // namespace xformer::sweep
