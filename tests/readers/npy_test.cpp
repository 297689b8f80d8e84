// Arrays made by hand in every type and order that is read, each thing that is refused, and genuine files.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "readers/npy.h"
#include "readers/npy_file.h"
#include "scratch.h"

namespace xformer::npy_test {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using npy_file::characters;
using npy_file::elements;
using npy_file::file;
using npy_file::with_header;
using readers::npy::Array;
using readers::npy::Numbers;
using readers::npy::Texts;

Array parse(const std::string& bytes) {
  return readers::npy::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "a.npy");
}

// As read whole; left in the file they must be the same.
Numbers numbers(const std::string& bytes) {
  const Array array = parse(bytes);
  const Numbers& result = std::get<Numbers>(array.values);
  const scratch::Folder folder;
  const readers::npy::NumberFile left(scratch::put(folder / "a.npy", bytes));
  CHECK((left.rows() == array.rows() && left.columns() == array.columns() && left.size() == result.size()));
  for (size_t i = 0; i < result.size(); ++i)
    CHECK((left[i] == result[i] || (std::isnan(left[i]) && std::isnan(result[i]))));
  return result;
}
Texts texts(const std::string& bytes) { return std::get<Texts>(parse(bytes).values); }

void refuses(const std::string& bytes, const std::string& words) {
  CAPTURE(words);
  const std::string message = scratch::message_of<DataError>([&] { (void)parse(bytes); });
  CHECK_THAT(message, StartsWith("a.npy: ") && Contains(words));
}

TEST_CASE("every type of number is read") {
  CHECK(numbers(file("<f4", "(2,)", elements<float>({1.5F, -2}))) == Numbers{1.5, -2});
  CHECK(numbers(file("<f8", "(2,)", elements<double>({0.1, -1e300}))) == Numbers{0.1, -1e300});
  CHECK(numbers(file("|i1", "(3,)", elements<int8_t>({-128, 0, 127}))) == Numbers{-128, 0, 127});
  CHECK(numbers(file("<i2", "(2,)", elements<int16_t>({-32768, 32767}))) == Numbers{-32768, 32767});
  CHECK(numbers(file("<i4", "(2,)", elements<int32_t>({-2147483647 - 1, 7}))) == Numbers{-2147483648.0, 7});
  CHECK(numbers(file("<i8", "(2,)", elements<int64_t>({-9007199254740992, 9007199254740992}))) ==
        Numbers{-9007199254740992.0, 9007199254740992.0});
  CHECK(numbers(file("|u1", "(2,)", elements<uint8_t>({0, 255}))) == Numbers{0, 255});
  CHECK(numbers(file("<u2", "(1,)", elements<uint16_t>({65535}))) == Numbers{65535});
  CHECK(numbers(file("<u4", "(1,)", elements<uint32_t>({4294967295}))) == Numbers{4294967295.0});
  CHECK(numbers(file("<u8", "(1,)", elements<uint64_t>({5}))) == Numbers{5});
  CHECK(numbers(file("|b1", "(2,)", elements<uint8_t>({1, 0}))) == Numbers{1, 0});
  const Numbers odd = numbers(file("<f4", "(2,)", elements<float>({NAN, INFINITY})));
  CHECK(std::isnan(odd[0]));
  CHECK(std::isinf(odd[1]));
}

TEST_CASE("big-endian numbers and text are turned round") {
  CHECK(numbers(file(">i4", "(2,)", std::string("\0\0\1\2\xff\xff\xff\xfe", 8))) == Numbers{258, -2});
  CHECK(numbers(file(">f8", "(1,)", std::string("\x3f\xf8\0\0\0\0\0\0", 8))) == Numbers{1.5});
  CHECK(texts(file(">U1", "(1,)", std::string("\0\0\0\x41", 4))) == Texts{"A"});
}

TEST_CASE("rows come one after the other whatever the order in the file") {
  const Array c = parse(file("<i4", "(2, 3)", elements<int32_t>({1, 2, 3, 4, 5, 6})));
  CHECK(c.shape == std::vector<int64_t>{2, 3});
  CHECK((c.rows() == 2 && c.columns() == 3 && c.type == "<i4" && !c.is_text()));
  CHECK(std::get<Numbers>(c.values) == Numbers{1, 2, 3, 4, 5, 6});
  CHECK(numbers(file("<i4", "(2, 3)", elements<int32_t>({1, 4, 2, 5, 3, 6}), true)) == Numbers{1, 2, 3, 4, 5, 6});
  CHECK(texts(file("<U2", "(2, 2)", characters({U"a", U"c", U"b", U"d"}, 2), true)) == Texts{"a", "b", "c", "d"});
  CHECK(parse(file("<f8", "(3,)", elements<double>({1, 2, 3}))).columns() == 1);
}

TEST_CASE("text of fixed width becomes UTF-8 without the zeros that fill it up") {
  CHECK(texts(file("<U4", "(5,)", characters({U"", U"ab", U"\u00fc\u20ac", U"\U0001F600", U"abcd"}, 4))) ==
        Texts{"", "ab", "\xc3\xbc\xe2\x82\xac", "\xf0\x9f\x98\x80", "abcd"});
}

TEST_CASE("empty arrays have no values") {
  CHECK(numbers(file("<f4", "(0,)", "")).empty());
  const Array array = parse(file("<f4", "(7, 0)", ""));
  CHECK((array.rows() == 7 && array.columns() == 0 && std::get<Numbers>(array.values).empty()));
}

TEST_CASE("headers of versions 1 to 3, in any order of keys, with either quote and Python 2's L are read") {
  for (const char major : {'\1', '\2', '\3'})
    CHECK(numbers(file("|u1", "(2,)", "\1\2", false, major)) == Numbers{1, 2});
  CHECK(numbers(with_header("{\"shape\":(2L, 1L),\"descr\":\"|u1\",\"fortran_order\":False}\n", "\1\2")) ==
        Numbers{1, 2});
}

TEST_CASE("Python objects are refused as the pickle they are") {
  refuses(file("|O", "(2,)", "\x80\x02]q"), "pickle, which is never executed; save it again as numbers or as text");
}

TEST_CASE("types that are not read are refused with those that are") {
  for (const char* type :
       {"<f2", "<c8", "|S5", "<M8[ns]", "<f16", "<i3", "|b2", "<U0", "<U", "f8", "", "<U99999999999999999999"})
    refuses(file(type, "(0,)", ""), std::string("dtype '") + type);
  refuses(file("|i4", "(0,)", ""), "lacks a byte order");
  refuses(with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", "1234"),
          "structured array");
}

TEST_CASE("headers that NumPy does not write are refused") {
  const auto header = [](const std::string& text) { return with_header(text, ""); };
  refuses(header(""), "expected '{' at byte 1 of the header, found its end");
  refuses(header("{'descr': '<f4', 'fortran_order': False}"), "the header lacks shape");
  refuses(header("{'descr': '<f4', 'shape': (0,)}"), "the header lacks fortran_order");
  refuses(header("{'shape': (0,), 'fortran_order': False}"), "the header lacks descr");
  refuses(header("{'descr': '<f4', 'descr': '<f4'}"), "has 'descr' twice");
  refuses(header("{'describe': '<f4'}"), "found 'describe'");
  refuses(header("{'fortran_order': 0}"), "expected True or False");
  refuses(header("{'shape': (3)}"), "a tuple");
  refuses(header("{'shape': (3 4)}"), "expected ',' or ')'");
  refuses(header("{'shape': (-3,)}"), "a size from 0");
  refuses(header("{'shape': (99999999999999999999,)}"), "a size from 0");
  refuses(header("{'shape': [3]}"), "expected '('");
  refuses(header("{'descr': '<f4}"), "whose quote is closed");
  refuses(header("{'descr': '\\x3cf4'}"), "without '\\'");
  refuses(header("{'descr': <f4}"), "in quotes");
  refuses(header("{'descr' '<f4'}"), "expected ':'");
  refuses(header("{'descr': '<f4' 'shape': (3,)}"), "expected '}'");
  refuses(header("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)} + 1"), "found '+ 1'");
}

TEST_CASE("arrays of no or three dimensions are refused") {
  refuses(file("<f4", "()", "1234"), "one or two dimensions, found shape ()");
  refuses(file("<f4", "(1, 1, 1)", "1234"), "found shape (1, 1, 1)");
}

TEST_CASE("a file cut at any byte, or too long, is refused") {
  const std::string whole = file("<f4", "(2, 2)", elements<float>({1, 2, 3, 4}));
  REQUIRE(numbers(whole) == Numbers{1, 2, 3, 4});
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO("cut to " << size << " of " << whole.size());
    CHECK_THROWS_AS(parse(whole.substr(0, size)), DataError);
  }
  refuses(whole.substr(0, 9), "the file is cut off: 9 bytes end inside its header's length");
  refuses(whole.substr(0, 40), "end inside its header");
  refuses(whole.substr(0, whole.size() - 1), "(2, 2) of <f4 needs 16 bytes of elements, 15 are there");
  refuses(whole + "x", "needs 16 bytes of elements, 17 are there");
}

TEST_CASE("numbers in the file allot no memory that the file does not have") {
  refuses(file("<f8", "(9223372036854775807, 9223372036854775807)", ""), "more than 2^64 bytes");
  refuses(file("<f8", "(1000000000000,)", ""), "0 are there");
  refuses(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12), "the header claims 4294967295 bytes");
}

TEST_CASE("a wrong beginning and an unknown version are refused") {
  refuses("", "begins with '\\x93NUMPY'");
  refuses("PK\3\4 a zip", "this one with 'PK");
  refuses(file("<f4", "(0,)", "", false, '\4'), "found 4.0");
}

TEST_CASE("numbers left in their file are refused as when they are read, text at once") {
  const scratch::Folder folder;
  const auto open = [&](const std::string& bytes) {
    return readers::npy::NumberFile(scratch::put(folder / "a.npy", bytes));
  };
  CHECK_THROWS_WITH(open(file("<U1", "(1,)", characters({U"a"}, 1))), Contains("expected numbers, found text (<U1)"));
  CHECK_THROWS_WITH(open("abc"), Contains("a .npy file begins with"));
  const readers::npy::NumberFile large(
      scratch::put(folder / "b.npy", file("<u8", "(2,)", elements<uint64_t>({1, ~uint64_t{0}}))));
  CHECK(large[0] == 1);
  CHECK_THROWS_WITH(large[1], Contains("2^53") && Contains("element 2"));
}

TEST_CASE("elements that are no value of their type are refused with their number") {
  refuses(file("|b1", "(2,)", "\1\2"), "expected 0 or 1 in element 2 of truth values, found 2");
  refuses(file("<i8", "(2,)", elements<int64_t>({1, 9007199254740993})), "found 9007199254740993 in element 2");
  refuses(file("<i8", "(1,)", elements<int64_t>({INT64_MIN})), "found -9223372036854775808 in element 1");
  refuses(file("<u8", "(1,)", elements<uint64_t>({UINT64_MAX})), "found 18446744073709551615");
  refuses(file("<U1", "(1,)", characters({std::u32string(1, 0x110000)}, 1)), "found the number 0x110000 in element 1");
  refuses(file("<U1", "(2,)", characters({U"a", std::u32string(1, 0xD800)}, 1)),
          "found the number 0xd800 in element 2");
}

TEST_CASE("genuine arrays have the types and shapes that are documented") {
  const auto folder = scratch::real_data("tabular");
  if (!folder) {
    WARN("skipped: XFORMER_TEST_DATA names no folder with tabular/");
    SUCCEED();
    return;
  }
  struct File {
    const char *name, *type;
    std::vector<int64_t> shape;
    double least, most;
  };
  // Least and most of the features: dollars in 100,000, class ids, rows of adult.data.
  for (const File& expected : {File{"california_housing/ft_layout/y_train.npy", "<f4", {13209}, 0.14999, 5.00001},
                               File{"cpu_act/y_train.npy", "|u1", {5242}, 0, 99},
                               File{"adult/ft_split/idx_train.npy", "<i8", {26048}, 0, 32560},
                               File{"adult/ft_split/idx_val.npy", "<i8", {6513}, 0, 32560}}) {
    INFO(expected.name);
    const Array array = readers::npy::read(*folder / expected.name);
    CHECK(array.type == expected.type);
    CHECK(array.shape == expected.shape);
    const auto& values = std::get<Numbers>(array.values);
    CHECK(*std::min_element(values.begin(), values.end()) >= expected.least - 1e-6);
    CHECK(*std::max_element(values.begin(), values.end()) <= expected.most + 1e-6);
  }
  CHECK(readers::npy::read(*folder / "cpu_act/N_val.npy").shape == std::vector<int64_t>{1311, 21});
}

}  // namespace xformer::npy_test
