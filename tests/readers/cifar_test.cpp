// CIFAR-10 batches: records and pickles, good and bad, and the grey levels by hand.
#include "readers/cifar.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "cifar_batches.h"
#include "core/error.h"
#include "scratch.h"

namespace xformer::cifar_test {

using Catch::Matchers::Contains;
using namespace readers::cifar;
using namespace std::string_literals;  // with zero bytes
using scratch::binary_batch;
using scratch::cifar_images;
using scratch::CifarImage;
using scratch::PickleStyle;
using scratch::python_batch;

using Read = int64_t (*)(std::string_view, const std::string&, const AddImage&);

std::vector<CifarImage> images_of(Read read, const std::string& bytes) {
  std::vector<CifarImage> images;
  const int64_t count = read(bytes, "some/batch", [&](uint8_t label, std::span<const uint8_t, 3072> colours) {
    images.push_back({label, std::string(reinterpret_cast<const char*>(colours.data()), colours.size())});
  });
  CHECK(count == static_cast<int64_t>(images.size()));
  return images;
}

bool same(const std::vector<CifarImage>& left, const std::vector<CifarImage>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const CifarImage& a, const CifarImage& b) {
    return a.label == b.label && a.colours == b.colours;
  });
}

std::string refusal(Read read, const std::string& bytes) {
  return scratch::message_of<DataError>([&] { (void)images_of(read, bytes); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("the number of binary records follows from the size") {
  for (const size_t count : {1U, 2U, 17U}) {
    const auto images = cifar_images(count);
    CHECK(same(images_of(read_binary_batch, binary_batch(images)), images));
  }
}

TEST_CASE("a size that is no multiple of a record and a label above 9 are refused, the label with its record") {
  const std::string batch = binary_batch(cifar_images(3));
  CHECK_THAT(refusal(read_binary_batch, batch + "x"),
             Contains("some/batch") && Contains("3073") && Contains("9220 bytes") && Contains("1 bytes over"));
  CHECK_THAT(refusal(read_binary_batch, batch.substr(0, 3072)), Contains("3072 bytes"));
  CHECK_THAT(refusal(read_binary_batch, ""), Contains("found 0 bytes"));
  std::string bad = batch;
  bad[3073] = 10;
  CHECK_THAT(refusal(read_binary_batch, bad), Contains("record 2 of 3") && Contains("found 10"));
}

TEST_CASE("a pickle of Python 2 or 3 gives the images, labels before or after the data") {
  const PickleStyle style{GENERATE(false, true), GENERATE(false, true), GENERATE(false, true), GENERATE(false, true),
                          GENERATE(false, true)};
  for (const size_t count : {1U, 2U, 300U, 1001U}) {  // lists are written in thousands
    if (count > 2 && style.columns_first) continue;
    const auto images = cifar_images(count, 5);
    CHECK(same(images_of(read_python_batch, python_batch(images, style)), images));
  }
}

TEST_CASE("a pickle cut at any byte is refused") {
  const std::string batch = python_batch(cifar_images(2), {GENERATE(false, true), true, true, false, true});
  for (size_t size = 0; size<batch.size(); size += size> 400 && size + 400 < batch.size() ? 97 : 1) {
    INFO("cut to " << size << " of " << batch.size());
    CHECK_THAT(refusal(read_python_batch, batch.substr(0, size)), Contains("some/batch: byte "));
  }
  CHECK_THAT(refusal(read_python_batch, batch + "."), Contains("1 more bytes"));
}

TEST_CASE("any other opcode, name or value is refused where it stands") {
  const std::string batch = python_batch(cifar_images(2));
  struct Case {
    std::string bytes, said;
  };
  const std::string call = "\x80\x02}q\x01(cos\nsystem\nU\x04true\x85R";
  const std::vector<Case> cases{
      {call, "byte 6: expected a name of the dict, found the name 'os.system'"},
      {"\x80\x02}q\x01(cposix\nsystem\n", "'posix.system'"},
      {"\x80\2cbuiltins\neval\n", "byte 2: expected a dict, found the opcode 0x63 'c'"},
      {"(dp0\n.", "byte 0: expected a pickle of protocol 2"},
      {"\x80\x04\x95", "the protocol 2"},
      {replaced(batch, "numpy.core.multiarray"s, "numpy.evil.multiarray"s), "'numpy.evil.multiarray._reconstruct'"},
      {replaced(batch, "cnumpy\nndarray\n"s, "cnumpy\nfromfile\n"s), "'numpy.fromfile'"},
      {replaced(batch, "ndarray\n"s, std::string(80, 'x')), "expected a name, found none that ends"},
      {replaced(batch, "U\x02u1"s, "U\x02i1"s), "expected the type of bytes, 'u1', found 'i1'"},
      {replaced(batch, "U\x02u1"s, "U\x02O8"s), "found 'O8'"},
      {replaced(batch, "M\x00\x0c\x86"s, "M\x01\x0c\x86"s), "found 3073"},
      {replaced(batch, "K\x02M\0\x0c"s, "K\x03M\0\x0c"s), "3072 bytes for each of 3"},
      {replaced(batch, "K\x02M\0\x0c"s, "K\0M\0\x0c"s), "at least one image"},
      {replaced(batch, "K\x02M\0\x0c"s, "J\xff\xff\xff\xffM\0\x0c"s), "found -1"},
      {replaced(batch, "labels"s, "labelz"s), "found 'labelz'"},
      {replaced(batch, "U\11filenames"s, "U\13batch_label"s), "every name once, found 'batch_label' again"},
      {replaced(batch, "(K\0K\1e"s, "(K\0K\12e"s), "a label from 0 to 9 for record 2, found 10"},
      {replaced(batch, "(K\0K\1e"s, "(K\0e"s), "2 labels, one for each row of data, found 1"},
      {replaced(batch, "NNNJ"s, "NN)J"s), "expected None"},
      {replaced(batch, "\x89T"s, "\x8aT"s), "found the opcode 0x8a"},
      {replaced(batch, "u."s, "b."s), "found the opcode 0x62 'b'"},
      {replaced(batch, "u."s, "uR"s), "found the opcode 0x52 'R'"},
      {replaced(batch, "U\x15training"s, "h\x63U\x15training"s), "the memo 99, which holds no text"},
      {replaced(batch, "U\x15training"s, "h\1U\x15training"s), "the memo 1, which holds no text"},
  };
  for (const Case& bad : cases) {
    INFO(bad.said);
    CHECK_THAT(refusal(read_python_batch, bad.bytes), Contains("some/batch: byte ") && Contains(bad.said));
  }
}

TEST_CASE("lengths and memos of a pickle cost no memory") {
  // Four gigabytes are promised, and a text is asked for again and again.
  CHECK_THAT(refusal(read_python_batch, "\x80\x02}q\x01(T\xff\xff\xff\xff"), Contains("4294967295 bytes"));
  const std::string again =
      "\x80\x02}q\x01(X\x0b\0\0\0batch_labelc_codecs\nencode\nq\x02X\x01\0\0\0xq\x03X\x06\0\0\0latin1q\x04\x86R"s;
  CHECK_THAT(refusal(read_python_batch, again), Contains("the end of the file"));
  std::string wide = python_batch(cifar_images(2), {true, false, true, false, false});
  const size_t latin = wide.find("\xC3\x83");
  REQUIRE(latin != std::string::npos);
  wide[latin] = '\xC4';  // a character above 255
  CHECK_THAT(refusal(read_python_batch, wide), Contains("characters up to 255"));
}

TEST_CASE("encodings within encodings are refused, however deep") {
  const std::string key = "\x80\x02}q\x01(X\x0b\0\0\0batch_label"s, name = "c_codecs\nencode\n";
  for (const std::string& one : {name, name + "q\x02" + "h\x02", name + "X\x01\0\0\0x"s + name}) {
    std::string deep = key;
    for (int i = 0; i < 100'000; ++i) deep += one;
    CHECK_THAT(refusal(read_python_batch, deep), Contains("expected plain text to be encoded, found another encoding"));
  }
}

TEST_CASE("grey levels are those of lra-recipe 3.4") {
  struct Case {
    int red, green, blue, grey;
  };
  // floor(255.5 * (0.2989 R + 0.5870 G + 0.1140 B) / 255), by hand.
  for (const Case& c : {Case{0, 0, 0, 0}, Case{255, 255, 255, 255}, Case{255, 0, 0, 76}, Case{0, 255, 0, 149},
                        Case{0, 0, 255, 29}, Case{255, 255, 0, 226}, Case{0, 255, 255, 179}, Case{255, 0, 255, 105},
                        Case{128, 128, 128, 128}, Case{1, 1, 1, 1}, Case{10, 20, 30, 18}, Case{200, 100, 50, 124}})
    CHECK(int{grey(static_cast<uint8_t>(c.red), static_cast<uint8_t>(c.green), static_cast<uint8_t>(c.blue))} ==
          c.grey);
}

TEST_CASE("grey levels are those of the formula in doubles") {
  int64_t other = 0;
  for (int red = 0; red < 256; red += 3)
    for (int green = 0; green < 256; ++green)
      for (int blue = 0; blue < 256; ++blue) {
        const double x = 0.2989 * (red / 255.0) + 0.5870 * (green / 255.0) + 0.1140 * (blue / 255.0);
        const int found = grey(static_cast<uint8_t>(red), static_cast<uint8_t>(green), static_cast<uint8_t>(blue));
        other += found == static_cast<int>(std::floor(255.5 * x)) ? 0 : 1;
      }
  CHECK(other == 0);
}

TEST_CASE("the real binary batches have their first labels and sizes") {
  const auto folder = scratch::real_data("cifar10");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with cifar10/");
    SUCCEED();
    return;
  }
  const auto first_labels = [&](const char* name, size_t count) {
    const auto images = images_of(read_binary_batch, read_file(*folder / "cifar-10-batches-bin" / name));
    CHECK(images.size() == count);
    std::string labels;
    for (size_t i = 0; i < 10; ++i) labels += static_cast<char>('0' + images[i].label);
    return labels;
  };
  CHECK(first_labels("data_batch_1.bin", 4000) == "6994112783");
  CHECK(first_labels("test_batch.bin", 1017) == "3880661631");
}

}  // namespace xformer::cifar_test
