// Parts of tensors and zeros behind them: as LibTorch's, but the tensor itself where nothing is cut or added.
#include "tensor/parts.h"

#include <catch2/catch.hpp>

namespace xformer::parts_test {

TEST_CASE("a part is what narrow gives, and all of a tensor is the tensor itself") {
  const at::Tensor x = at::arange(24).view({2, 3, 4});
  CHECK(part_of(x, 1, 0, 3).is_same(x));
  CHECK(part_of(x, 1, 0, 2).equal(x.narrow(1, 0, 2)));
  CHECK(part_of(x, 2, 1, 3).equal(x.narrow(2, 1, 3)));
  CHECK(part_of(x, 0, 1, 1).equal(x.narrow(0, 1, 1)));
}

TEST_CASE("zeros stand behind the last entry of any dimension, counted from either end, and none cost nothing") {
  const at::Tensor x = at::arange(1, 25).view({2, 3, 4});
  CHECK(with_zeros_behind(x, 1, 0).is_same(x));
  for (const int64_t dim : {0, 1, 2, -1, -2, -3}) {
    CAPTURE(dim);
    const at::Tensor longer = with_zeros_behind(x, dim, 2);
    REQUIRE(longer.size(dim) == x.size(dim) + 2);
    CHECK(longer.narrow(dim, 0, x.size(dim)).equal(x));
    CHECK(longer.narrow(dim, x.size(dim), 2).count_nonzero().item<int64_t>() == 0);
    CHECK(longer.numel() == x.numel() / x.size(dim) * (x.size(dim) + 2));
  }
  CHECK_FALSE(with_zeros_behind(at::ones({3}, at::kBool), 0, 1)[3].item<bool>());
}

TEST_CASE("the gradient of a whole part and of no zeros goes through untouched") {
  const at::Tensor x = at::ones({2, 5}).requires_grad_(true);
  const at::Tensor y = part_of(with_zeros_behind(x, 1, 0), 1, 0, 5);
  CHECK(y.is_same(x));
  part_of(with_zeros_behind(x, 1, 3), 1, 0, 4).sum().backward();
  CHECK(x.grad().sum().item<double>() == 8);
}

}  // namespace xformer::parts_test
