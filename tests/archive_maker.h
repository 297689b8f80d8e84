// Archives for tests, good and bad ones, made by libarchive's writer.
#pragma once

#include <archive.h>
#include <archive_entry.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace xformer::scratch {

struct Member {
  std::string path, content;
  unsigned type = AE_IFREG;
  std::string link;  // the target of AE_IFLNK, or of a hard link
};

enum class ArchiveKind { kTar, kTarGz, kZip };

inline std::string archive_of(ArchiveKind kind, const std::vector<Member>& members) {
  size_t room = size_t{1} << 16;
  for (const Member& member : members) room += member.content.size() + member.path.size() + 4096;
  std::string bytes(room, '\0');
  size_t used = 0;
  ::archive* writer = archive_write_new();
  const auto check = [&](int status) {
    if (status != ARCHIVE_OK) throw std::runtime_error(archive_error_string(writer));
  };
  check(kind == ArchiveKind::kZip ? archive_write_set_format_zip(writer) : archive_write_set_format_ustar(writer));
  if (kind == ArchiveKind::kTarGz) check(archive_write_add_filter_gzip(writer));
  check(archive_write_open_memory(writer, bytes.data(), bytes.size(), &used));
  for (const Member& member : members) {
    ::archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, member.path.c_str());
    archive_entry_set_filetype(entry, member.type);
    archive_entry_set_perm(entry, 04777);
    archive_entry_set_size(entry, static_cast<la_int64_t>(member.content.size()));
    if (member.type == AE_IFLNK) archive_entry_set_symlink(entry, member.link.c_str());
    else if (!member.link.empty()) archive_entry_set_hardlink(entry, member.link.c_str());
    check(archive_write_header(writer, entry));
    if (!member.content.empty()) archive_write_data(writer, member.content.data(), member.content.size());
    archive_entry_free(entry);
  }
  check(archive_write_close(writer));
  archive_write_free(writer);
  bytes.resize(used);
  return bytes;
}

}  // namespace xformer::scratch
