// CIFAR-10 (Krizhevsky 2009): the batches of its binary and of its Python version, and the grey levels of the
// Long Range Arena.
//
// Binary: records of 3,073 bytes, a label and 1,024 red, green and blue bytes, row by row. Python: a pickle of
// protocol 2 that holds a dict with batch_label, labels, data and filenames, as Python 2 and NumPy wrote it and as
// Python 3 writes it again. It is read as a format of its own: only the opcodes of that layout, in their places;
// nothing is ever looked up, called or executed. Whatever else comes is a DataError with its offset.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace xformer::readers::cifar {

inline constexpr size_t kSide = 32, kPixels = kSide * kSide, kChannels = 3;
inline constexpr size_t kRecordBytes = 1 + kChannels * kPixels;
inline constexpr uint8_t kClasses = 10;

// `colours` holds all red, all green and all blue bytes of an image, row by row.
using AddImage = std::function<void(uint8_t label, std::span<const uint8_t, kChannels * kPixels> colours)>;

// The records of one batch; returns their number, which follows from the size. `origin` is the file's name for
// messages. A size that is no multiple of a record and a label above 9 are DataErrors, the latter with its record.
int64_t read_binary_batch(std::string_view bytes, const std::string& origin, const AddImage& add);
int64_t read_python_batch(std::string_view bytes, const std::string& origin, const AddImage& add);

// floor(255.5 x) of x = 0.2989 R + 0.5870 G + 0.1140 B over 255 (TensorFlow's rule), in whole numbers: floats give
// one level more or less where x lies at a step, depending on their order.
constexpr uint8_t grey(uint8_t red, uint8_t green, uint8_t blue) {
  const uint64_t sum = uint64_t{2989} * red + uint64_t{5870} * green + uint64_t{1140} * blue;
  return static_cast<uint8_t>(511 * sum / (2 * 255 * 10'000));
}

}  // namespace xformer::readers::cifar
