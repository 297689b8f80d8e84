// Archives in every accepted form, and every way one can be bad: made here, member by member.
#include "readers/archive.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <map>

#include "archive_maker.h"
#include "core/error.h"
#include "scratch.h"

namespace xformer::archive_test {

using Catch::Matchers::Contains;
using readers::EntryReader;
using readers::for_each_entry;
using readers::unpack;
using readers::UnpackLimits;
using scratch::archive_of;
using scratch::ArchiveKind;
using scratch::Folder;
using scratch::Member;
using Files = std::vector<std::pair<std::string, std::string>>;

constexpr uint64_t kPlenty = uint64_t{1} << 30;

Files files_of(const Path& archive, const UnpackLimits& limits = {}) {
  Files files;
  for_each_entry(archive, limits, [&](const std::string& path, EntryReader& reader) {
    files.emplace_back(path, reader.read_all(kPlenty));
  });
  return files;
}

// What streaming and unpacking say; both must refuse, and unpacking must leave nothing.
std::string refusal(const Path& archive, const UnpackLimits& limits = {}) {
  const Folder folder;
  CHECK_THROWS_AS(unpack(archive, folder / "target", limits, {}, {}), DataError);
  CHECK(scratch::names_in(folder.path()).empty());
  return scratch::message_of<DataError>([&] { (void)files_of(archive, limits); });
}

std::string refusal_of(ArchiveKind kind, const std::vector<Member>& members, const UnpackLimits& limits = {}) {
  const Folder folder;
  const Path archive = scratch::put(folder / "bad", archive_of(kind, members));
  const std::string message = refusal(archive, limits);
  CHECK_THAT(message, Contains(archive.string()));
  return message;
}

std::string words(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += std::to_string(i * i) + ' ';
  return text;
}

const std::vector<Member> kGood{{"top", "", AE_IFDIR, ""},
                                {"top/a.txt", "first", AE_IFREG, ""},
                                {"./top//below/./b", words(50000), AE_IFREG, ""},
                                {"empty", "", AE_IFREG, ""}};
const Files kGoodFiles{{"top/a.txt", "first"}, {"top/below/b", words(50000)}, {"empty", ""}};

TEST_CASE("tar, tar.gz and zip give their files in order, whatever their name says") {
  const Folder folder;
  for (const ArchiveKind kind : {ArchiveKind::kTar, ArchiveKind::kTarGz, ArchiveKind::kZip})
    CHECK(files_of(scratch::put(folder / "no-ending", archive_of(kind, kGood))) == kGoodFiles);
}

TEST_CASE("what is left unread is skipped, and a reader tells how far the archive is") {
  const Folder folder;
  for (const ArchiveKind kind : {ArchiveKind::kTar, ArchiveKind::kTarGz, ArchiveKind::kZip}) {
    const Path archive = scratch::put(folder / "a", archive_of(kind, kGood));
    std::string seen;
    uint64_t last = 0;
    for_each_entry(archive, {}, [&](const std::string& path, EntryReader& reader) {
      if (path == "top/below/b") CHECK(reader.read().substr(0, 8) == "0 1 4 9 ");
      CHECK(reader.archive_bytes() == std::filesystem::file_size(archive));
      CHECK(reader.archive_position() <= reader.archive_bytes());
      last = reader.archive_position();
      seen += path + ' ';
    });
    CHECK(seen == "top/a.txt top/below/b empty ");
    CHECK(last > 0);
  }
}

TEST_CASE("unpacking writes the wanted files with plain rights, below a folder that appears whole") {
  const Folder folder;
  for (const ArchiveKind kind : {ArchiveKind::kTar, ArchiveKind::kTarGz, ArchiveKind::kZip}) {
    const Path archive = scratch::put(folder / "archive", archive_of(kind, kGood));
    uint64_t calls = 0;
    unpack(archive, folder / "all", {},
           [&](std::string_view, uint64_t done, uint64_t total) {
             CHECK(done <= total);
             ++calls;
           },
           {});
    CHECK(calls == 3);
    for (const auto& [path, content] : kGoodFiles) CHECK(read_file(folder / "all" / path) == content);
    struct stat status {};
    REQUIRE(::stat((folder / "all" / "top" / "a.txt").c_str(), &status) == 0);
    CHECK((status.st_mode & 07111) == 0);  // the archive says 4777
    unpack(archive, folder / "some", {}, {}, [](const std::string& path) { return path == "empty"; });
    CHECK(scratch::names_in(folder / "some") == std::vector<std::string>{"empty"});
    CHECK_THAT(scratch::message_of<UserError>([&] { unpack(archive, folder / "all", {}, {}, {}); }),
               Contains("there already"));
    std::filesystem::remove_all(folder / "all");
    std::filesystem::remove_all(folder / "some");
  }
}

TEST_CASE("links, devices and pipes are refused by name") {
  for (const ArchiveKind kind : {ArchiveKind::kTar, ArchiveKind::kZip})
    CHECK_THAT(refusal_of(kind, {{"a", "x", AE_IFREG, ""}, {"evil", "", AE_IFLNK, "/etc/passwd"}}),
               Contains("entry 'evil'") && Contains("symbolic link"));
  CHECK_THAT(refusal_of(ArchiveKind::kTarGz, {{"a", "x", AE_IFREG, ""}, {"b", "", AE_IFREG, "a"}}),
             Contains("entry 'b'") && Contains("hard link"));
  CHECK_THAT(refusal_of(ArchiveKind::kTar, {{"disk", "", AE_IFBLK, ""}}), Contains("'disk'") && Contains("device"));
  CHECK_THAT(refusal_of(ArchiveKind::kTar, {{"tty", "", AE_IFCHR, ""}}), Contains("'tty'") && Contains("device"));
  CHECK_THAT(refusal_of(ArchiveKind::kTar, {{"queue", "", AE_IFIFO, ""}}), Contains("'queue'") && Contains("pipe"));
}

TEST_CASE("a name that leads out of the folder is refused, a name with dots in it is not") {
  for (const ArchiveKind kind : {ArchiveKind::kTar, ArchiveKind::kZip}) {
    CHECK_THAT(refusal_of(kind, {{"/etc/cron", "x", AE_IFREG, ""}}), Contains("'/etc/cron'") && Contains("absolute"));
    for (const char* const name : {"../a", "a/../../b", "a/.."})
      CHECK_THAT(refusal_of(kind, {{name, "x", AE_IFREG, ""}}), Contains(name) && Contains("'..'"));
    CHECK_THAT(refusal_of(kind, {{"..", "", AE_IFDIR, ""}}), Contains("'..'"));
    const Folder folder;
    CHECK(files_of(scratch::put(folder / "a", archive_of(kind, {{"..a/b..c/...", "x", AE_IFREG, ""}}))) ==
          Files{{"..a/b..c/...", "x"}});
  }
}

TEST_CASE("a path is one file: no second one, no folder, nothing below it") {
  const std::string same = refusal_of(ArchiveKind::kTar, {{"d/a", "1", AE_IFREG, ""}, {"./d//a", "2", AE_IFREG, ""}});
  CHECK_THAT(same, Contains("'d/a'") && Contains("twice"));
  CHECK_THAT(refusal_of(ArchiveKind::kTarGz, {{"a", "1", AE_IFREG, ""}, {"a/b", "2", AE_IFREG, ""}}),
             Contains("'a/b'") && Contains("'a' is a file and a folder"));
  CHECK_THAT(refusal_of(ArchiveKind::kZip, {{"a/b", "1", AE_IFREG, ""}, {"a", "2", AE_IFREG, ""}}), Contains("'a'"));
  const Folder folder;
  const std::vector<Member> folders{{"a", "", AE_IFDIR, ""}, {"a/", "", AE_IFDIR, ""}, {"a/b", "x", AE_IFREG, ""}};
  CHECK(files_of(scratch::put(folder / "a", archive_of(ArchiveKind::kTar, folders))) == Files{{"a/b", "x"}});
}

TEST_CASE("entries, bytes and ratio are bounded") {
  UnpackLimits limits;
  limits.entries = 2;
  CHECK_THAT(refusal_of(ArchiveKind::kTar, kGood, limits), Contains("more than 2 entries"));
  limits = {};
  limits.bytes = 100'000;
  CHECK_THAT(refusal_of(ArchiveKind::kTarGz, kGood, limits), Contains("'top/below/b'") && Contains("100.0 KB"));
  const std::string zeros(size_t{24} << 20, '\0');
  for (const ArchiveKind kind : {ArchiveKind::kTarGz, ArchiveKind::kZip})
    CHECK_THAT(refusal_of(kind, {{"good", "x", AE_IFREG, ""}, {"bomb", zeros, AE_IFREG, ""}}),
               Contains("'bomb'") && Contains("200 times"));
  // Small ones may pack as well as they like, and plain ones are as large as what they hold.
  const Folder folder;
  CHECK(files_of(scratch::put(folder / "a", archive_of(ArchiveKind::kTarGz,
                                                       {{"small", zeros.substr(0, size_t{8} << 20), AE_IFREG, ""}})))
            .size() == 1);
  CHECK(files_of(scratch::put(folder / "b", archive_of(ArchiveKind::kTar, {{"plain", zeros, AE_IFREG, ""}}))).size() ==
        1);
  CHECK_THAT(scratch::message_of<DataError>([&] {
               for_each_entry(folder / "b", {},
                              [](const std::string&, EntryReader& reader) { (void)reader.read_all(1000); });
             }),
             Contains("'plain'") && Contains("at most 1.0 KB"));
}

TEST_CASE("an archive cut at any byte is a DataError with its name, and with the entry once one was reached") {
  const std::vector<Member> members{{"one", words(100), AE_IFREG, ""}, {"two", words(40), AE_IFREG, ""}};
  for (const ArchiveKind kind : {ArchiveKind::kTar, ArchiveKind::kTarGz, ArchiveKind::kZip}) {
    const std::string whole = archive_of(kind, members);
    // A tar ends with blocks of zeros, of which one is enough.
    const size_t needed = kind == ArchiveKind::kTar ? whole.find_last_not_of('\0') + 1 + 512 : whole.size();
    const Folder folder;
    int64_t named = 0;
    for (size_t size = 0; size < needed; size += size + 40 < needed && size > 40 ? 7 : 1) {
      const Path archive = scratch::put(folder / "cut", whole.substr(0, size));
      INFO("cut to " << size << " of " << whole.size());
      const std::string message = scratch::message_of<DataError>([&] { (void)files_of(archive); });
      CHECK_THAT(message, Contains(archive.string()) && Contains("cut off"));
      named += message.find("entry 'one'") != std::string::npos || message.find("entry 'two'") != std::string::npos;
    }
    CHECK((named > 0 || kind == ArchiveKind::kZip));  // without its directory a zip has no entries at all
  }
}

TEST_CASE("a changed bit of the packed bytes is noticed") {
  const std::vector<Member> members{{"one", words(300), AE_IFREG, ""}, {"two", words(100), AE_IFREG, ""}};
  for (const ArchiveKind kind : {ArchiveKind::kTarGz, ArchiveKind::kZip}) {
    const std::string whole = archive_of(kind, members);
    const Folder folder;
    for (size_t at = 80; at < 450; at += 3) {  // all of it within the data of the first file
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 4);
      INFO("byte " << at << " of " << whole.size());
      CHECK_THROWS_AS(files_of(scratch::put(folder / "changed", changed)), DataError);
    }
  }
}

TEST_CASE("other files, folders and missing files are no archives") {
  const Folder folder;
  CHECK_THAT(refusal(scratch::put(folder / "text", "Some words.\n")), Contains("no tar, tar.gz or zip"));
  CHECK_THAT(refusal(scratch::put(folder / "nothing", "")), Contains("no tar, tar.gz or zip"));
  CHECK_THAT(refusal(folder.path()), Contains("found a folder"));
  CHECK_THAT(refusal(folder / "missing"), Contains("found nothing"));
}

TEST_CASE("a full disk at any operation leaves nothing of an unpacking") {
  const Folder folder;
  const Path archive = scratch::put(folder / "a", archive_of(ArchiveKind::kTarGz, kGood));
  for (int64_t at = 0;; ++at) {
    const Folder target;
    std::string message;
    {
      const scratch::Fault fault(at, ENOSPC);
      message = scratch::message_of<ResourceError>([&] { unpack(archive, target / "new", {}, {}, {}); });
      if (fault.seen() <= at) {  // there is no such operation any more
        CHECK(message.empty());
        CHECK(at > 8);  // a write for each block, two syncs, a rename
        return;
      }
    }
    INFO("operation " << at);
    CHECK_THAT(message, Contains("No space left"));
    const bool complete = std::filesystem::exists(target / "new");  // only the sync after the rename failed
    CHECK(scratch::names_in(target.path()).size() == (complete ? 1U : 0U));
    if (complete) CHECK(read_file(target / "new" / "top" / "below" / "b") == words(50000));
  }
}

}  // namespace xformer::archive_test
