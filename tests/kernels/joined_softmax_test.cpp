// joined_softmax against its definition, and against one softmax over the keys of all parts.
#include "kernels/joined_softmax/joined_softmax.h"

#include "fused_support.h"
#include "kernels/window_attention/window_attention.h"

namespace xformer::kernels::joined_softmax_test {

// parts outs, some with more rows than n and each in its own memory order, then as many logs of sums.
Tensors some_parts(int64_t parts, int64_t n, int64_t e, at::ScalarType type) {
  Tensors result;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t rows = n + (i % 3 == 1 ? 5 : 0);
    const std::string name = "out" + std::to_string(i);
    result.push_back(i % 2 == 0 ? random_tensor(name, {2, 3, rows, e}, type)
                                : random_tensor(name, {2, rows, 3, e}, type).transpose(1, 2));
  }
  for (int64_t i = 0; i < parts; ++i) {
    const at::Tensor& out = result[static_cast<size_t>(i)];
    result.push_back(random_tensor("log" + std::to_string(i), {2, 3, out.size(2), 1}, type) * 3);
  }
  return result;
}

TEST_CASE("joined_softmax equals its definition, with gradients of rows and logs") {
  for (const auto& [parts, n, e] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 3, 4}, {2, 64, 32}, {3, 65, 5}, {7, 130, 48}, {2, 1, 17}})
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      CAPTURE(parts, n, e);
      const auto by = [parts = parts, n = n](const auto& function) {
        return [=](const Tensors& x) {
          return Tensors{function(Tensors(x.begin(), x.begin() + parts), Tensors(x.begin() + parts, x.end()), n)};
        };
      };
      CHECK(worst_difference(by(joined_softmax), by(joined_softmax_reference), some_parts(parts, n, e, type)) <
            (type == at::kDouble ? 1e-14 : 1e-5));
    }
}

TEST_CASE("joined_softmax of softmaxes over some keys each is the softmax over all") {
  const at::Tensor scores = random_tensor("scores", {2, 3, 20, 11}) * 2, v = random_tensor("v", {2, 3, 11, 6});
  Tensors outs, log_sums;
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 1}, {5, 6}}) {
    const at::Tensor part = scores.narrow(3, first, count);
    outs.push_back(at::matmul(at::softmax(part, -1), v.narrow(2, first, count)));
    log_sums.push_back(at::logsumexp(part, -1, /*keepdim=*/true));
  }
  // A part without keys plays no part.
  outs.push_back(random_tensor("none", {2, 3, 20, 6}));
  log_sums.push_back(at::full({2, 3, 20, 1}, lowest_log_sum(at::kDouble), scores.options()));
  CHECK(difference(joined_softmax(outs, log_sums, 20), at::matmul(at::softmax(scores, -1), v)) < 1e-14);
}

}  // namespace xformer::kernels::joined_softmax_test
