# libarchive: tar and zip files.
#
# Linked as a static library where that works, with the libraries that its zip reader names: Debian's shared one needs
# libxml2, and that 31 MB of ICU, for formats that this program does not read; scripts/package would take them along.
# Those libraries are on every machine with Debian's libarchive; without their -dev packages they are found by version.
include(CheckCXXSourceCompiles)
find_package(LibArchive REQUIRED)
find_library(XFORMER_LIBARCHIVE_STATIC libarchive.a)
set(parts ${XFORMER_LIBARCHIVE_STATIC})
foreach(part nettle:libnettle.so.8 lzma:liblzma.so.5 zstd:libzstd.so.1 bz2:libbz2.so.1.0)
  string(REPLACE ":" ";" names ${part})
  list(GET names 0 name)
  find_library(XFORMER_LIBARCHIVE_${name} NAMES ${names})
  list(APPEND parts ${XFORMER_LIBARCHIVE_${name}})
endforeach()

if(NOT "${parts}" MATCHES NOTFOUND)
  set(CMAKE_REQUIRED_INCLUDES ${LibArchive_INCLUDE_DIRS})
  set(CMAKE_REQUIRED_LIBRARIES ${parts} ZLIB::ZLIB)
  check_cxx_source_compiles("#include <archive.h>
  int main() {
    auto* handle = archive_read_new();
    archive_read_support_format_tar(handle);
    archive_read_support_format_zip_seekable(handle);
    return archive_read_open_filename(handle, nullptr, 0) + archive_read_free(handle);
  }" XFORMER_LIBARCHIVE_LINKS_STATICALLY)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()

add_library(libarchive INTERFACE)
target_include_directories(libarchive SYSTEM INTERFACE ${LibArchive_INCLUDE_DIRS})
if(XFORMER_LIBARCHIVE_LINKS_STATICALLY)
  target_link_libraries(libarchive INTERFACE ${parts} ZLIB::ZLIB)
else()
  target_link_libraries(libarchive INTERFACE LibArchive::LibArchive)
endif()
