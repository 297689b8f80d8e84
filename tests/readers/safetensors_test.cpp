// Headers made by hand: what is read, and each thing that is refused.
#include <catch2/catch.hpp>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "readers/safetensors.h"

namespace {

using namespace xformer;
using namespace xformer::readers;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>((length >> (8 * i)) & 0xFF);
  return file + rest;
}

std::string file_of(const std::string& header, size_t data_bytes = 0) {
  return with_length(header.size(), header + std::string(data_bytes, 'x'));
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "model.safetensors");
}

std::string tensor(const std::string& name, const std::string& type, const std::string& shape, uint64_t begin,
                   uint64_t end) {
  return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

void refuses(const std::string& file, const std::string& words) {
  CAPTURE(words, file.substr(0, 200));
  CHECK_THROWS_AS(parse(file), DataError);
  CHECK_THROWS_WITH(parse(file), Catch::StartsWith("model.safetensors: ") && Catch::Contains(words));
}

}  // namespace

TEST_CASE("a header gives names, types, shapes and ranges in the order of the data") {
  const std::string header = R"({"__metadata__":{"step":"7","a\"b":"ü"},)" + tensor("later", "F32", "[2,3]", 8, 32) +
                             "," + tensor("first", "I64", "[]", 0, 8) + "}  ";
  const SafetensorsHeader read = parse(file_of(header, 32));
  CHECK(read.metadata == std::map<std::string, std::string>{{"step", "7"}, {"a\"b", "ü"}});
  CHECK(read.data_offset == 8 + header.size());
  REQUIRE(read.tensors.size() == 2);
  CHECK(read.tensors[0].name == "first");
  CHECK(read.tensors[0].shape.empty());
  CHECK(read.tensors[1].name == "later");
  CHECK(read.tensors[1].type == "F32");
  CHECK(read.tensors[1].shape == std::vector<int64_t>{2, 3});
  CHECK(read.tensors[1].begin == 8);
  CHECK(read.tensors[1].end == 32);
}

TEST_CASE("a file without tensors and tensors without elements are files like others") {
  CHECK(parse(file_of("{}")).tensors.empty());
  CHECK(parse(file_of(R"({"__metadata__":null})")).metadata.empty());
  const auto read = parse(file_of(
      "{" + tensor("none", "BF16", "[0,4611686018427387904]", 0, 0) + "," + tensor("one", "BOOL", "[1]", 0, 1) + "}",
      1));
  REQUIRE(read.tensors.size() == 2);
  CHECK(read.tensors[0].name == "none");
}

TEST_CASE("every type of the format has its size and any other name has none") {
  for (const char* const type : {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"}) CHECK(bytes_per_element(type) == 1);
  for (const char* const type : {"I16", "U16", "F16", "BF16"}) CHECK(bytes_per_element(type) == 2);
  for (const char* const type : {"I32", "U32", "F32"}) CHECK(bytes_per_element(type) == 4);
  for (const char* const type : {"I64", "U64", "F64", "C64"}) CHECK(bytes_per_element(type) == 8);
  for (const char* const type : {"", "f32", "F3", "F321", "F4"}) CHECK(bytes_per_element(type) == 0);
}

TEST_CASE("a file too short for its header is refused") {
  refuses("", "this one has 0 bytes");
  refuses("1234567", "this one has 7 bytes");
  refuses(with_length(3, "{}"), "claims 3 bytes, the file has 2");
  refuses(with_length(100'000'001, "{}"), "at most 100000000 are allowed");
  refuses(with_length(std::numeric_limits<uint64_t>::max(), "{}"), "at most 100000000 are allowed");
  refuses(with_length(100'000'000, "{}"), "the file has 2");
}

TEST_CASE("a header that is not one JSON object of valid UTF-8 is refused") {
  refuses(file_of(""), "not with '{'");
  refuses(file_of(" {}"), "not with '{'");
  refuses(file_of("[]"), "not with '{'");
  refuses(file_of("{"), "not valid JSON");
  refuses(file_of("{} x"), "not valid JSON");
  refuses(file_of(R"({"a":})"), "not valid JSON");
  refuses(file_of("{\"\xff\":1}"), "not valid JSON");
  refuses(file_of("{/**/}"), "not valid JSON");
  refuses(file_of(std::string("{}\0junk", 7)), "zero byte");
}

TEST_CASE("an unknown type is refused by name") {
  refuses(file_of("{" + tensor("w", "F31", "[1]", 0, 4) + "}", 4), "tensor 'w' has the unknown type 'F31'");
}

TEST_CASE("a shape whose product overflows is refused, with zeros to its right or without") {
  const std::string huge = "4611686018427387904";  // 2^62
  refuses(file_of("{" + tensor("w", "U8", "[" + huge + ",4]", 0, 0) + "}"), "overflows");
  refuses(file_of("{" + tensor("w", "F32", "[" + huge + "]", 0, 0) + "}"), "overflows");
  refuses(file_of("{" + tensor("w", "U8", "[" + huge + "," + huge + ",0]", 0, 0) + "}"), "overflows");
}

TEST_CASE("ranges that overlap, leave holes, run backwards or miss the data's end are refused") {
  const auto two = [](uint64_t begin, uint64_t end) {
    return "{" + tensor("a", "U8", "[4]", 0, 4) + "," +
           tensor("b", "U8", "[" + std::to_string(end - begin) + "]", begin, end) + "}";
  };
  CHECK(parse(file_of(two(4, 8), 8)).tensors.size() == 2);
  refuses(file_of(two(3, 8), 8), "tensor 'b' begins at byte 3, inside the tensor before it");
  refuses(file_of(two(0, 4), 4), "inside the tensor before it");
  refuses(file_of(two(5, 8), 8), "bytes 4 to 5 before tensor 'b' belong to no tensor");
  refuses(file_of("{" + tensor("a", "U8", "[1]", 1, 2) + "}", 2), "bytes 0 to 1 before tensor 'a'");
  refuses(file_of("{" + tensor("a", "U8", "[1]", 2, 1) + "}", 2), "ends at byte 1, before its begin 2");
  refuses(file_of(two(4, 8), 7), "cut off: its tensors need 8 bytes of data, 7 are there, which end in tensor 'b'");
  refuses(file_of(two(4, 8), 9), "1 bytes after the last tensor");
  refuses(file_of("{}", 5), "5 bytes after the last tensor");
}

TEST_CASE("a size that does not fit the shape is refused") {
  refuses(file_of("{" + tensor("w", "F32", "[2,3]", 0, 20) + "}", 20),
          "tensor 'w' has 20 bytes, but F32 of shape [2, 3] need 24");
  refuses(file_of("{" + tensor("w", "F32", "[]", 0, 0) + "}"), "need 4");
}

TEST_CASE("a name, a field or a metadata key that comes twice is refused") {
  const std::string entry = tensor("w", "U8", "[0]", 0, 0);
  refuses(file_of("{" + entry + "," + entry + "}"), "names 'w' twice");
  refuses(file_of(R"({"w":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"), "'dtype' twice");
  refuses(file_of(R"({"__metadata__":{"a":"1","a":"2"}})"), "'a' twice");
  refuses(file_of(R"({"__metadata__":{},"__metadata__":{}})"), "names '__metadata__' twice");
}

TEST_CASE("an entry with missing, unknown or mistyped fields is refused") {
  refuses(file_of(R"({"w":{"shape":[0],"data_offsets":[0,0]}})"), "tensor 'w' has no dtype");
  refuses(file_of(R"({"w":{"dtype":"U8","data_offsets":[0,0]}})"), "has no shape");
  refuses(file_of(R"({"w":{"dtype":"U8","shape":[0]}})"), "has no data_offsets");
  refuses(file_of(R"({"w":{"dtype":"U8","shapes":[0]}})"), "not 'shapes'");
  refuses(file_of(R"({"w":{"dtype":8}})"), "should have the name of a type, not 8");
  refuses(file_of(R"({"w":{"shape":{}}})"), "should have a list of sizes, not an object");
  refuses(file_of(R"({"w":{"shape":[-1]}})"), "not -1");
  refuses(file_of(R"({"w":{"shape":[1.0]}})"), "not '1.0'");
  refuses(file_of(R"({"w":{"shape":[9223372036854775808]}})"), "not 9223372036854775808");
  refuses(file_of(R"({"w":{"shape":[true]}})"), "not true or false");
  refuses(file_of(R"({"w":{"shape":null}})"), "not null");
  refuses(file_of(R"({"w":{"data_offsets":[0]}})"), "two offsets");
  refuses(file_of(R"({"w":{"data_offsets":[0,1,2]}})"), "two offsets");
  refuses(file_of(R"({"w":{"data_offsets":[0,18446744073709551616]}})"), "two offsets");
  refuses(file_of(R"({"w":[]})"), "not a list");
  refuses(file_of(R"({"__metadata__":{"a":1}})"), "should have text, not 1");
  refuses(file_of(R"({"__metadata__":{"a":{}}})"), "should have text, not an object");
}

TEST_CASE("nesting deeper than the format's is refused without reading on") {
  std::string deep(1'000'000, '[');
  refuses(file_of(R"({"w":)" + deep), "not a list");
  std::string objects = R"({"w":)";
  for (int i = 0; i < 100'000; ++i) objects += R"({"dtype":)";
  refuses(file_of(objects), "not an object");
}

TEST_CASE("a written header is read back as it was and its data begins at a multiple of eight") {
  SafetensorsHeader header;
  header.metadata = {{"plan", R"({"seed": 1})"}, {"", "ü"}};
  header.tensors = {
      {"encoder.0.weight", "F32", {2, 3}, 0, 24}, {"empty", "BF16", {0, 7}, 24, 24}, {"step \"1\"", "I64", {}, 24, 32}};
  const std::string bytes = write_safetensors_header(header);
  CHECK(bytes.size() % 8 == 0);
  const SafetensorsHeader back = parse(bytes + std::string(32, 'x'));
  CHECK(back.metadata == header.metadata);
  CHECK(back.data_offset == bytes.size());
  REQUIRE(back.tensors.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(back.tensors[i].name == header.tensors[i].name);
    CHECK(back.tensors[i].type == header.tensors[i].type);
    CHECK(back.tensors[i].shape == header.tensors[i].shape);
    CHECK(back.tensors[i].begin == header.tensors[i].begin);
    CHECK(back.tensors[i].end == header.tensors[i].end);
  }
  CHECK(write_safetensors_header({}) == with_length(8, "{}      "));
}

TEST_CASE("a header that would not be read back is not written") {
  const auto refused = [](const std::vector<TensorEntry>& tensors) {
    SafetensorsHeader header;
    header.tensors = tensors;
    CHECK_THROWS_AS(write_safetensors_header(header), InternalError);
  };
  refused({{"w", "F31", {1}, 0, 4}});
  refused({{"w", "F32", {1}, 0, 8}});
  refused({{"w", "F32", {1}, 4, 8}});
  refused({{"w", "U8", {1}, 0, 1}, {"w", "U8", {1}, 1, 2}});
  refused({{"__metadata__", "U8", {1}, 0, 1}});
  refused({{"\xff", "U8", {1}, 0, 1}});
}
