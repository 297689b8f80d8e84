// What SeriesReader asks of a format of time-series files, and what the two formats share. Internal to src/readers.
#pragma once

#include "readers/time_series.h"

namespace xformer::readers {

class SeriesFormat {
 public:
  virtual ~SeriesFormat() = default;
  // A header line "@keyword rest", its keyword in lower case. `where` ("file:line") opens every message.
  virtual void read_header(std::string_view keyword, std::string_view rest, std::string_view where) = 0;
  // The whole header, asked for at @data.
  [[nodiscard]] virtual SeriesHeader header(std::string_view where) const = 0;
  // The values of a case, and its label as the file has it.
  virtual void read_case(std::string_view line, std::string_view where, std::vector<std::vector<float>>& dimensions,
                         std::string& label) = 0;
};

[[nodiscard]] std::unique_ptr<SeriesFormat> make_ts_format();
[[nodiscard]] std::unique_ptr<SeriesFormat> make_arff_format();

// A finite number, or NaN for a missing value. The message names the dimension and the place in it, from 1.
[[nodiscard]] float parse_series_value(std::string_view text, std::string_view where, size_t dimension, size_t place);
// Values separated by commas.
void parse_series_values(std::string_view text, std::string_view where, size_t dimension, std::vector<float>& values);

// Takes the first word, up to a blank, off the front of `text`, and the blanks around it.
[[nodiscard]] std::string_view take_word(std::string_view& text);

}  // namespace xformer::readers
