// Options of the families that score every place of a sequence (decoder, token-encoder), and the parts they mean.
#pragma once

#include "models/encoder_options.h"

namespace xformer::models {

struct PlaceOptions : EncoderOptions {
  PlaceOptions();
  bool tied = true;
  int64_t loss_block = 0;
};
[[nodiscard]] const Schema<PlaceOptions>& place_schema();

// UserError as check_encoder's.
void check_places(const PlaceOptions& options, const ModelRequest& request);

[[nodiscard]] Parts place_parts(const PlaceOptions& options, const ModelRequest& request);

}  // namespace xformer::models
