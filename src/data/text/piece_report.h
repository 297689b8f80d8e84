// What `data check` says of a corpus in pieces.
#pragma once

#include "data/check.h"

namespace xformer::data {

// `info` is that of a PieceStream, or has its details.
void report_pieces(const DataInfo& info, CheckReport& report);

}  // namespace xformer::data
