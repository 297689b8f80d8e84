// IDX files as MNIST comes, plain and compressed; and what is none.
#include "readers/idx.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "gzip_maker.h"
#include "idx_maker.h"
#include "scratch.h"

namespace xformer::idx_test {

using Catch::Matchers::Contains;
using scratch::gzip;
using scratch::idx_file;

namespace {

std::string refusal(const std::string& content, size_t dimensions = 3) {
  const scratch::Folder folder;
  const Path path = scratch::put(folder / "train-images-idx3-ubyte", content);
  return scratch::message_of<DataError>([&] { (void)readers::read_idx(path, dimensions); });
}

}  // namespace

TEST_CASE("sizes and values of an IDX file, plain or gzip", "[idx]") {
  const scratch::Folder folder;
  const std::string values("\x00\x01\x7f\x80\xfe\xff", 6);
  for (const std::string& content : {idx_file({1, 2, 3}, values), gzip(idx_file({1, 2, 3}, values))}) {
    const readers::IdxArray array = readers::read_idx(scratch::put(folder / "some", content), 3);
    CHECK(array.sizes == std::vector<int64_t>{1, 2, 3});
    CHECK(array.values == std::vector<uint8_t>{0, 1, 127, 128, 254, 255});
  }
  // Larger than a block, and sizes of several bytes.
  std::string many(300 * 300, 'x');
  many[70000] = 'y';
  const readers::IdxArray large = readers::read_idx(scratch::put(folder / "large", gzip(idx_file({300, 300}, many))));
  CHECK((large.sizes == std::vector<int64_t>{300, 300} && large.values[70000] == 'y' && large.values[70001] == 'x'));
}

TEST_CASE("what is no IDX file of unsigned bytes is told for what it is", "[idx]") {
  const std::string values(12, '\x05'), good = idx_file({2, 2, 3}, values);
  CHECK_THAT(refusal(""), Contains("is empty"));
  CHECK_THAT(refusal("P5 28 28 255"), Contains("expected an IDX file"));
  CHECK_THAT(refusal(std::string("\0\0\x08", 3)), Contains("expected an IDX file"));
  CHECK_THAT(refusal(idx_file({2, 2, 3}, values, 0x07)), Contains("expected an IDX file"));
  CHECK_THAT(refusal(idx_file({}, "")), Contains("expected an IDX file"));
  CHECK_THAT(refusal(idx_file({2, 2, 3}, values, 0x0D)), Contains("expected unsigned bytes, found floats"));
  CHECK_THAT(refusal(idx_file({12}, values)), Contains("expected 3 dimensions, found 1"));
  CHECK_THAT(refusal(good, 1), Contains("expected 1 dimension, found 3"));
  CHECK_THAT(refusal(good.substr(0, 11)), Contains("cut off in its header: 11 of 16 bytes"));
  CHECK_THAT(refusal(good.substr(0, 20)), Contains("is cut off: its header says 12 bytes, found 4"));
  CHECK_THAT(refusal(good + "x"), Contains("its header says 12 bytes, and more follow"));
  CHECK_THAT(refusal(idx_file({2, 0, 3}, "")), Contains("found the size 0"));
  CHECK_THAT(refusal(idx_file({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, values)), Contains("says more than"));
  CHECK_THAT(refusal(gzip(good).substr(0, 25)), Contains("gzip stream has no end"));
  CHECK_THAT(refusal("version https://git-lfs.github.com/spec/v1\n"), Contains("git lfs pull"));
}

}  // namespace xformer::idx_test
