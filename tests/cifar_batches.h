// Batches of CIFAR-10 for tests: records, and pickles assembled opcode by opcode.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace xformer::scratch {

struct CifarImage {
  uint8_t label = 0;
  std::string colours;  // 3,072 bytes
};

// Images of which no two bytes beside each other are alike, labels 0 to 9 in turn from `first`.
inline std::vector<CifarImage> cifar_images(size_t count, size_t first = 0) {
  std::vector<CifarImage> images(count);
  for (size_t i = 0; i < count; ++i) {
    images[i].label = static_cast<uint8_t>((first + i) % 10);
    for (size_t j = 0; j < 3072; ++j)
      images[i].colours += static_cast<char>((first + i) * 31 + j * 7 + j / 1024 * 13 + j / 256);
  }
  return images;
}

inline std::string binary_batch(const std::vector<CifarImage>& images) {
  std::string bytes;
  for (const CifarImage& image : images) bytes += static_cast<char>(image.label) + image.colours;
  return bytes;
}

struct PickleStyle {
  bool python3 = false;      // text where Python 3 writes it: names; bytes by _codecs.encode
  bool byte_keys = true;     // with python3: bytes all the same
  bool labels_first = true;  // as the publisher's files, or after the data
  bool columns_first = false;
  bool names_first = false;  // the names of the files before everything else
};

class PickleWriter {
 public:
  explicit PickleWriter(const PickleStyle& style) : style_(style) {}

  std::string batch(const std::vector<CifarImage>& images) {
    bytes_ = "\x80\x02}";
    put();
    bytes_ += '(';
    key("batch_label");
    text("training batch 1 of 5");
    if (style_.names_first) names(images.size());
    if (style_.labels_first) labels(images);
    data(images);
    if (!style_.labels_first) labels(images);
    if (!style_.names_first) names(images.size());
    return bytes_ + "u.";
  }

 private:
  void little_endian(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }
  void put() {
    bytes_ += memo_ < 256 ? 'q' : 'r';
    little_endian(memo_, memo_ < 256 ? 1 : 4);
    ++memo_;
  }
  void unicode(const std::string& bytes) {
    std::string encoded;
    for (const char byte : bytes) {
      const auto code = static_cast<uint8_t>(byte);
      if (code < 0x80) encoded += byte;
      else (encoded += static_cast<char>(0xC0 | (code >> 6))) += static_cast<char>(0x80 | (code & 0x3F));
    }
    bytes_ += 'X';
    little_endian(encoded.size(), 4);
    bytes_ += encoded;
    put();
  }
  // Bytes of either Python; those of the third refer to what they said before.
  void text(const std::string& content) {
    if (!style_.python3) {
      bytes_ += content.size() < 256 ? 'U' : 'T';
      little_endian(content.size(), content.size() < 256 ? 1 : 4);
      bytes_ += content;
      put();
      return;
    }
    if (encode_ < 0) {
      bytes_ += "c_codecs\nencode\n";
      encode_ = static_cast<int>(memo_);
      put();
      unicode(content);
      latin1_ = static_cast<int>(memo_);
      unicode("latin1");
    } else {
      bytes_ += 'h';
      little_endian(static_cast<uint64_t>(encode_), 1);
      unicode(content);
      bytes_ += 'h';
      little_endian(static_cast<uint64_t>(latin1_), 1);
    }
    bytes_ += '\x86';
    put();
    bytes_ += 'R';
    put();
  }
  void key(const std::string& name) {
    if (style_.python3 && !style_.byte_keys) unicode(name);
    else text(name);
  }
  void integer(uint64_t value) {
    bytes_ += value < 256 ? 'K' : 'M';
    little_endian(value, value < 256 ? 1 : 2);
  }
  // A thousand at a time, a single one that is left over by itself.
  template <class Item>
  void list(size_t count, const Item& item) {
    for (size_t begin = 0; begin < count; begin += 1000) {
      const size_t end = std::min(count, begin + 1000);
      if (end - begin > 1) bytes_ += '(';
      for (size_t i = begin; i < end; ++i) item(i);
      bytes_ += end - begin > 1 ? 'e' : 'a';
    }
  }
  void names(size_t count) {
    key("filenames");
    bytes_ += ']';
    put();
    list(count, [&](size_t i) { text("image_" + std::to_string(i) + ".png"); });
  }
  void labels(const std::vector<CifarImage>& images) {
    key("labels");
    bytes_ += ']';
    put();
    list(images.size(), [&](size_t i) { integer(images[i].label); });
  }
  void data(const std::vector<CifarImage>& images) {
    key("data");
    bytes_ += style_.python3 ? "cnumpy._core.multiarray\n_reconstruct\n" : "cnumpy.core.multiarray\n_reconstruct\n";
    put();
    bytes_ += "cnumpy\nndarray\n";
    put();
    bytes_ += std::string("K\0\x85", 3);
    put();
    text("b");
    bytes_ += '\x87';
    put();
    bytes_ += 'R';
    put();
    bytes_ += "(K\x01";
    integer(images.size());
    integer(3072);
    bytes_ += '\x86';
    put();
    bytes_ += "cnumpy\ndtype\n";
    put();
    if (style_.python3) unicode("u1");
    else text("u1");
    bytes_ += style_.python3 ? std::string("\x89\x88\x87") : std::string("K\0K\x01\x87", 5);
    put();
    bytes_ += 'R';
    put();
    bytes_ += "(K\x03";
    if (style_.python3) unicode("|");
    else text("|");
    bytes_ += std::string("NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0t", 16);
    put();
    bytes_ += 'b';
    bytes_ += style_.columns_first ? '\x88' : '\x89';
    std::string pixels;
    if (style_.columns_first) {
      for (size_t j = 0; j < 3072; ++j)
        for (const CifarImage& image : images) pixels += image.colours[j];
    } else {
      for (const CifarImage& image : images) pixels += image.colours;
    }
    text(pixels);
    bytes_ += 't';
    put();
    bytes_ += 'b';
  }

  PickleStyle style_;
  std::string bytes_;
  uint64_t memo_ = 1;
  int encode_ = -1, latin1_ = -1;
};

inline std::string python_batch(const std::vector<CifarImage>& images, const PickleStyle& style = {}) {
  return PickleWriter(style).batch(images);
}

}  // namespace xformer::scratch
