// A dropout site in the middle of a run, for tests of fused operators.
#pragma once

#include "kernels/dropout/place.h"

namespace xformer::kernels {

inline DropoutPlace place_of(double p) {
  DropoutStream stream(5);
  stream.set_step(3, 2);
  return {p, stream.state, 4};
}

}  // namespace xformer::kernels
