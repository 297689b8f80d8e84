// SHA-256 against its published examples (FIPS 180-2).
#include <catch2/catch.hpp>

#include "core/hash.h"
#include "scratch.h"

namespace xformer::hash_test {

constexpr const char* kOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

TEST_CASE("sha256 gives the published digests") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == kOfAbc);
  CHECK(sha256(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("md5 of a file is as RFC 1321 gives it") {
  const scratch::Folder folder;
  CHECK(md5_of_file(scratch::put(folder / "empty", "")) == "d41d8cd98f00b204e9800998ecf8427e");
  CHECK(md5_of_file(scratch::put(folder / "abc", "abc")) == "900150983cd24fb0d6963f7d28e17f72");
}

TEST_CASE("sha256 of pieces and of a file is that of the whole") {
  Sha256 hash;
  hash.update("a");
  hash.update("");
  hash.update("bc");
  CHECK(hash.hex() == kOfAbc);
  const scratch::Folder folder;
  CHECK(sha256_of_file(scratch::put(folder / "abc", "abc")) == kOfAbc);
  CHECK(sha256_of_file(scratch::put(folder / "empty", "")) == sha256(""));
}

}  // namespace xformer::hash_test
