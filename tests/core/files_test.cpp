// Atomic writes under every fault, locks, maps, appended lines and the cache folder.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/error.h"
#include "core/files.h"
#include "scratch.h"

namespace xformer::files_test {

using Catch::Matchers::Contains;
using scratch::Fault;
using scratch::Folder;

using Names = std::vector<std::string>;

TEST_CASE("an atomic write replaces the content and leaves nothing else") {
  const Folder folder;
  write_file_atomically(folder / "a", "old");
  CHECK(read_file(folder / "a") == "old");
  write_file_atomically(folder / "a", std::string(3 << 20, 'x'));
  CHECK(read_file(folder / "a") == std::string(3 << 20, 'x'));
  write_file_atomically(folder / "a", "");
  CHECK(read_file(folder / "a").empty());
  CHECK(scratch::names_in(folder.path()) == Names{"a"});
}

TEST_CASE("pieces handed to the sink come out in order, small and large ones") {
  const Folder folder;
  std::string expected;
  write_file_atomically(folder / "a", [&](const ByteSink& sink) {
    for (int i = 0; i < 40; ++i) {
      const std::string piece(static_cast<size_t>(i) * 12345, static_cast<char>('a' + i % 26));
      expected += piece;
      sink(piece);
    }
  });
  CHECK(read_file(folder / "a") == expected);
}

TEST_CASE("a fault at any operation of an atomic write leaves the old or the new content, whole and alone") {
  const std::string before(1000, 'o'), after(5 << 20, 'n');
  const int error = GENERATE(ENOSPC, EACCES, EIO, EDQUOT);
  int64_t operations = 0;
  for (int64_t at = 0;; ++at) {
    const Folder folder;
    write_file_atomically(folder / "a", before);
    std::string message;
    {
      const Fault fault(at, error);
      message = scratch::message_of<ResourceError>([&] {
        write_file_atomically(folder / "a", [&](const ByteSink& sink) {
          for (int i = 0; i < 5; ++i) sink(std::string_view(after).substr(0, 1 << 20));
        });
      });
      operations = fault.seen();
    }
    const std::string content = read_file(folder / "a");
    INFO("operation " << at << ": " << message);
    CHECK((content == before || content == after));
    CHECK(scratch::names_in(folder.path()) == Names{"a"});
    if (message.empty()) {  // no operation was left to fail
      CHECK(content == after);
      break;
    }
    CHECK_THAT(message, Contains((folder / "a").string()) && Contains(std::strerror(error)));
  }
  CHECK(operations >= 5 + 1 + 1 + 1);  // five blocks, sync, rename, sync of the folder
}

TEST_CASE("an atomic write goes through links, keeps the mode, and never replaces what is no plain file") {
  const Folder folder;
  std::filesystem::create_directory(folder / "far");
  write_file_atomically(folder / "far" / "a", "old");
  REQUIRE(::chmod((folder / "far" / "a").c_str(), 0640) == 0);
  std::filesystem::create_symlink("far/a", folder / "link");
  std::filesystem::create_symlink(folder / "link", folder / "chain");
  std::filesystem::create_symlink("far/b", folder / "dangling");
  write_file_atomically(folder / "chain", "new");
  write_file_atomically(folder / "dangling", "born");
  CHECK(read_file(folder / "far" / "a") == "new");
  CHECK(read_file(folder / "far" / "b") == "born");
  for (const char* link : {"link", "chain", "dangling"}) CHECK(std::filesystem::is_symlink(folder / link));
  struct stat status {};
  REQUIRE(::stat((folder / "far" / "a").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0640);

  std::filesystem::create_symlink("loop", folder / "loop");
  CHECK_THROWS_AS(write_file_atomically(folder / "loop", "x"), ResourceError);
  CHECK_THROWS_WITH(write_file_atomically(folder / "far", "x"), Contains("found a folder"));
  if (::mknod((folder / "null").c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0) {
    CHECK_THROWS_WITH(write_file_atomically(folder / "null", "x"), Contains("found a device"));
    CHECK(kind_of_file(folder / "null") == "a device");
  }
  CHECK(scratch::names_in(folder / "far") == Names{"a", "b"});
}

TEST_CASE("a pipe is written as it comes, and refused when nobody reads it") {
  const Folder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(write_file_atomically(folder / "pipe", "x"), Contains("nobody reads"));
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(folder / "pipe", [](const ByteSink& sink) { sink("one "), sink("two"); });
  char text[16] = {};
  CHECK(::read(reader, text, sizeof text) == 7);
  ::close(reader);
  CHECK(std::string(text) == "one two");
  CHECK(kind_of_file(folder / "pipe") == "a pipe");
}

TEST_CASE("an exception of the producer leaves the old content") {
  const Folder folder;
  write_file_atomically(folder / "a", "old");
  const auto fail = [](const ByteSink& sink) {
    sink("new");
    throw DataError("stop");
  };
  CHECK_THROWS_AS(write_file_atomically(folder / "a", fail), DataError);
  CHECK(read_file(folder / "a") == "old");
  CHECK(scratch::names_in(folder.path()) == Names{"a"});
}

TEST_CASE("a failed sync fails the save") {
  const Folder folder;
  testing::file_fault = [](std::string_view operation, int64_t) { return operation == "sync" ? EIO : 0; };
  CHECK_THROWS_AS(write_file_atomically(folder / "a", "new"), ResourceError);
  testing::file_fault = nullptr;
  CHECK_FALSE(std::filesystem::exists(folder / "a"));
}

TEST_CASE("what a killed writer left is removed by the next write of the same file") {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    write_file_atomically(folder / "a", [](const ByteSink& sink) {
      sink(std::string(2 << 20, 'x'));
      ::kill(::getpid(), SIGKILL);
    });
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(scratch::names_in(folder.path()).size() == 1);
  CHECK_FALSE(std::filesystem::exists(folder / "a"));
  write_file_atomically(folder / "a", "new");
  CHECK(scratch::names_in(folder.path()) == Names{"a"});
}

TEST_CASE("a path below a regular file is a ResourceError for writing and a DataError for reading") {
  const Folder folder;
  scratch::put(folder / "file", "x");
  const Path path = folder / "file" / "below";
  const auto written = scratch::message_of<ResourceError>([&] { write_file_atomically(path, "y"); });
  CHECK_THAT(written, Contains(path.string()) && Contains("Not a directory"));
  CHECK_THAT(scratch::message_of<DataError>([&] { (void)read_file(path); }), Contains(path.string()));
  CHECK(read_file(folder / "file") == "x");
}

TEST_CASE("a missing file and a folder read as a file are DataErrors that name the path") {
  const Folder folder;
  CHECK_THAT(scratch::message_of<DataError>([&] { (void)read_file(folder / "none"); }),
             Contains((folder / "none").string()) && Contains("No such file"));
  CHECK_THAT(scratch::message_of<DataError>([&] { (void)read_file(folder.path()); }), Contains("found a folder"));
  CHECK_THROWS_AS(MappedFile(folder / "none"), DataError);
}

TEST_CASE("a mapped file has the bytes of the file, an empty one none") {
  const Folder folder;
  const MappedFile full(scratch::put(folder / "full", "abc"));
  CHECK(std::string(reinterpret_cast<const char*>(full.bytes().data()), full.bytes().size()) == "abc");
  CHECK(MappedFile(scratch::put(folder / "empty", "")).bytes().empty());
}

TEST_CASE("appended lines follow each other and can be cut off again") {
  const Folder folder;
  scratch::put(folder / "log", "one\n");
  AppendFile log(folder / "log");
  CHECK(log.size() == 4);
  log.write("two\n");
  log.sync();
  CHECK(read_file(folder / "log") == "one\ntwo\n");
  log.truncate(4);
  log.write("three\n");
  CHECK(read_file(folder / "log") == "one\nthree\n");
}

TEST_CASE("an append that meets a full disk leaves whole lines") {
  const Folder folder;
  AppendFile log(folder / "log");
  log.write("one\n");
  {
    const Fault fault(0, ENOSPC);
    CHECK_THAT(scratch::message_of<ResourceError>([&] { log.write("two is longer\n"); }),
               Contains((folder / "log").string()) && Contains("No space left"));
  }
  CHECK(read_file(folder / "log") == "one\n");
  log.write("three\n");
  CHECK(read_file(folder / "log") == "one\nthree\n");
}

TEST_CASE("a lock excludes others until it is released or its process dies") {
  const Folder folder;
  {
    const std::optional<FileLock> mine = FileLock::try_lock(folder / "lock");
    REQUIRE(mine.has_value());
    CHECK_FALSE(FileLock::try_lock(folder / "lock").has_value());
    const pid_t child = ::fork();
    if (child == 0) ::_exit(FileLock::try_lock(folder / "lock").has_value() ? 1 : 0);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WEXITSTATUS(status) == 0);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock held = FileLock::wait(folder / "lock");
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  CHECK(FileLock::try_lock(folder / "lock").has_value());
}

TEST_CASE("a lock in a place that cannot be written is a ResourceError") {
  const Folder folder;
  scratch::put(folder / "file", "x");
  CHECK_THROWS_AS(FileLock::wait(folder / "file" / "lock"), ResourceError);
}

TEST_CASE("the cache is XFORMER_CACHE, else XDG_CACHE_HOME/xformer, else ~/.cache/xformer") {
  const scratch::Variable home("HOME", "/home/someone");
  const scratch::Variable shared("XDG_CACHE_HOME", "/cache");
  {
    const scratch::Variable own("XFORMER_CACHE", "/own");
    CHECK(cache_folder() == "/own");
  }
  const scratch::Variable own("XFORMER_CACHE", "");
  CHECK(cache_folder() == "/cache/xformer");
  const scratch::Variable relative("XDG_CACHE_HOME", "relative");
  CHECK(cache_folder() == "/home/someone/.cache/xformer");
}

}  // namespace xformer::files_test
