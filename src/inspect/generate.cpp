#include "inspect/generate.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "core/random.h"

namespace xformer::inspect {

void generate(models::Model& model, const GenerationRequest& request) {
  auto* const reader = dynamic_cast<models::DecodingModel*>(&model);
  XF_CHECK(reader != nullptr, UserError, "the model is not read place by place; expected one of the family decoder");
  const auto begin = static_cast<int64_t>(request.begin.size());
  XF_ASSERT(begin >= 1 && begin <= request.places, "{} ids for {} places", begin, request.places);
  const at::NoGradGuard no_grad;
  model.eval();
  std::vector<Stream> numbers;
  for (int64_t i = 0; i < request.count; ++i)
    numbers.emplace_back(derive_seed(request.seed, "generate"), static_cast<uint64_t>(i));
  const at::Tensor ids = at::zeros({request.count, begin + request.length}, at::kLong);
  ids.narrow(1, 0, begin).copy_(at::tensor(request.begin, at::kLong));
  auto written = ids.accessor<int64_t, 2>();
  models::Decoded so_far{.memory = model.init_state(request.count)};
  int64_t read = 0;
  std::vector<int64_t> classes(static_cast<size_t>(request.count));
  for (int64_t known = begin; known < begin + request.length; ++known) {
    if (so_far.places == request.places && so_far.memory.empty()) {
      so_far = {};
      read = known - std::max<int64_t>(1, request.places / 2);
    }
    const at::Tensor scores = reader->decode(ids.narrow(1, read, known - read).to(request.device), so_far)
                                  .to(at::kCPU, at::kDouble)
                                  .contiguous();
    read = known;
    const auto width = static_cast<size_t>(scores.size(1));
    for (size_t i = 0; i < classes.size(); ++i) {
      const std::span<const double> row(scores.const_data_ptr<double>() + i * width, width);
      classes[i] = drawn_class(sampling_distribution(row, request.sampling), numbers[i].next_unit());
      written[static_cast<int64_t>(i)][known] = classes[i] + request.first_id;
    }
    request.next(classes);
  }
}

}  // namespace xformer::inspect
