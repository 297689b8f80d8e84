// A disk that fills up while a run saves: one error, the checkpoints before it stay, and the run goes on afterwards.
#include <sched.h>
#include <sys/mount.h>

#include "program.h"

namespace xformer::program_test {
namespace {

constexpr const char* kDiskBytes = "size=400k";

// A small file system of its own, seen by this process and its children only; "" or why there is none.
std::string small_disk(const Path& folder) {
  const unsigned user = ::getuid(), group = ::getgid();
  if (::unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) return "no name space for mounts";
  if (user != 0) {
    scratch::put("/proc/self/setgroups", "deny");
    scratch::put("/proc/self/uid_map", fmt::format("0 {} 1", user));
    scratch::put("/proc/self/gid_map", fmt::format("0 {} 1", group));
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "mounts cannot be made private";
  if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, kDiskBytes) != 0) return "a tmpfs cannot be mounted";
  return "";
}

TEST_CASE("a full disk while saving loses nothing", "[disk]") {
  const Place place;
  std::filesystem::create_directory(place / "disk");
  if (const std::string reason = small_disk(place / "disk"); !reason.empty()) {
    WARN("skipped: " << reason);
    SUCCEED();
    return;
  }
  const Words command = tiny("linear", "--set model.dropout=0.1 --steps 30 --checkpoint-every 4");
  REQUIRE(place.run(command + "--out whole").code == 0);
  const Path run = place / "disk" / "run";
  const Words here = command + Words{"--out", run.string()};
  REQUIRE(place.run(here + "--stop-after 14").code == 0);
  const std::vector<std::string> before = checkpoints_of(run);
  REQUIRE(before.size() == 2);

  const uint64_t space = std::filesystem::space(place / "disk").available;
  const uint64_t needed = std::filesystem::file_size(run / "checkpoints" / before[1]);
  REQUIRE(space > needed);
  scratch::put(place / "disk" / "ballast", std::string(space - needed / 2, 'x'));
  const Outcome full = place.run(here);
  INFO(full.err);
  CHECK(full.code == 4);
  CHECK(contains(full.err, "No space left on device"));
  const size_t first = full.err.find("xformer: ");
  REQUIRE(first != std::string::npos);
  CHECK(full.err.find("xformer: ", first + 1) == std::string::npos);
  CHECK_FALSE(contains(full.err, "bug in xformer"));
  CHECK(checkpoints_of(run) == before);
  for (const std::string& name : scratch::names_in(run / "checkpoints")) CHECK_FALSE(name.starts_with('.'));

  std::filesystem::remove(place / "disk" / "ballast");
  const Outcome rest = place.run(here);
  INFO(rest.err);
  REQUIRE(rest.code == 0);
  CHECK(resumed_steps(run).back() == 14);
  check_same_end(run, place / "whole");
  ::umount2((place / "disk").c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace xformer::program_test
