// compressive (attention-more 6).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "attention/support.h"
#include "tensor/probe.h"

namespace xformer::attention::compressive_test {

using namespace support;

namespace {

constexpr int64_t kWidth = 10;

at::Tensor tensor_of(const BuiltMixer& built, const std::string& name) {
  for (const auto& [key, value] : built.state())
    if (key == name) return value.detach();
  FAIL("no tensor " << name);
  return {};
}

BuiltMixer make(const std::string& function, int64_t memory, int64_t slots, int64_t rate,
                const Json& more = Json::object()) {
  Json options{{"memory", memory}, {"compressed_memory", slots}, {"compression_rate", rate}, {"compressor", function}};
  options.update(more);
  return make_mixer("compressive", options, {.causal = true});
}

BuiltMixer plain(int64_t memory, const BuiltMixer& with) {
  const BuiltMixer result = make_mixer("transformer-xl", {{"memory", memory}}, {.causal = true});
  for (const auto& [name, value] : result.state()) value.data().copy_(tensor_of(with, name));
  return result;
}

// One segment after the other, each told what the one before left.
struct Reader {
  const BuiltMixer& mixer;
  State state;

  Reader(const BuiltMixer& of, int64_t batch) : mixer(of), state(init_state(*of.module, batch)) {}
  at::Tensor operator()(const at::Tensor& x, const SequenceMask& mask = {{}, true}) {
    Carry carry = state;
    const at::Tensor out = mixer.module->forward(x, mask, carry);
    for (auto& [name, tensor] : state) tensor = carry.at(name);
    return out;
  }
  // The rows of a sample that count.
  [[nodiscard]] at::Tensor kept(const std::string& name, int64_t sample) const {
    const at::Tensor valid = state.at("layer0/" + name + "_valid")[sample];
    return state.at("layer0/" + name)[sample].index_select(0, valid.nonzero().flatten());
  }
};

at::Tensor stacked(const std::vector<at::Tensor>& rows) {
  return rows.empty() ? at::zeros({0, kWidth}, at::kDouble) : at::stack(rows);
}

// The definition of the memories for one sample, by lists of rows.
struct Lists {
  std::string function;
  size_t memory_length, slots, rate;
  std::vector<at::Tensor> memory = {}, compressed = {};

  // `use`: of each row that falls out, how much the segment attended to it.
  void take(const at::Tensor& segment, const BuiltMixer& mixer, const std::vector<double>& use) {
    for (int64_t i = 0; i < segment.size(0); ++i) memory.push_back(segment[i]);
    const size_t n = static_cast<size_t>(segment.size(0)), groups = (n + rate - 1) / rate;
    if (memory.size() <= memory_length) return;
    const std::vector<at::Tensor> old(memory.begin(), memory.end() - static_cast<int64_t>(memory_length));
    memory.erase(memory.begin(), memory.end() - static_cast<int64_t>(memory_length));
    if (function == "most_used") {
      std::vector<size_t> best(old.size());
      std::iota(best.begin(), best.end(), size_t{0});
      std::stable_sort(best.begin(), best.end(), [&](size_t a, size_t b) { return use[a] > use[b]; });
      best.resize(std::min(groups, best.size()));
      std::sort(best.begin(), best.end());
      for (const size_t one : best) compressed.push_back(old[one]);
    } else {
      // Groups end with the last row; what is missing of the first stands in front.
      for (size_t group = groups; group-- > 0;) {
        const int64_t end = static_cast<int64_t>(old.size()) - static_cast<int64_t>(group * rate);
        if (end <= 0) continue;
        compressed.push_back(one_slot(old, end, mixer));
      }
    }
    if (compressed.size() > slots) compressed.erase(compressed.begin(), compressed.end() - static_cast<int64_t>(slots));
  }

  // Of the rows in front of `end`.
  [[nodiscard]] at::Tensor one_slot(const std::vector<at::Tensor>& old, int64_t end, const BuiltMixer& mixer) const {
    std::vector<at::Tensor> rows, taps;
    const auto c = static_cast<int64_t>(rate);
    for (int64_t i = std::max<int64_t>(0, end - c); i < end; ++i) rows.push_back(old[static_cast<size_t>(i)]);
    if (function == "mean") return at::stack(rows).mean(0);
    if (function == "max") return at::stack(rows).amax(0);
    for (int64_t tap = c - 1; tap >= 0; --tap) {
      const int64_t place = end - 1 - tap * (function == "dilated" ? 2 : 1);
      taps.push_back(place >= 0 ? old[static_cast<size_t>(place)] : at::zeros({kWidth}, at::kDouble));
    }
    return at::matmul(tensor_of(mixer, "compress.weight"), at::cat(taps)) + tensor_of(mixer, "compress.bias");
  }
};

}  // namespace

TEST_CASE("memories are those of the definition, for every function, and slots are keys one step apart", "[xl]") {
  const int64_t n = 6, batch = 2;
  for (const char* function : {"mean", "max", "conv", "dilated", "most_used"})
    for (const auto& [memory, slots, rate] :
         {std::tuple{6, 4, 2}, std::tuple{6, 9, 3}, {9, 5, 2}, {4, 7, 4}, {0, 5, 3}}) {
      INFO(function << " memory " << memory << " slots " << slots << " rate " << rate);
      const BuiltMixer mixer = make(function, memory, slots, rate), whole = plain(0, mixer);
      Reader reader(mixer, batch);
      std::vector<Lists> lists(static_cast<size_t>(batch), {function, static_cast<size_t>(memory),
                                                            static_cast<size_t>(slots), static_cast<size_t>(rate)});
      for (int64_t segment = 0; segment < 6; ++segment) {
        const at::Tensor x = random_tensor("segment" + std::to_string(segment), {batch, n, kWidth});
        at::Tensor out, weights;
        {
          const ProbeRecorder recorder([](const std::string& name) { return name == "weights"; });
          out = reader(x);
          weights = recorder.kept().front().second.to(at::kDouble);
        }
        for (int64_t s = 0; s < batch; ++s) {
          Lists& list = lists[static_cast<size_t>(s)];
          // The rows of [compressed; memory; segment] at once: the last n are what the segment reads.
          std::vector<at::Tensor> rows = list.compressed;
          rows.insert(rows.end(), list.memory.begin(), list.memory.end());
          const at::Tensor all = at::cat({stacked(rows), x[s]}).unsqueeze(0);
          CHECK(max_difference(out[s], whole(all, {{}, true})[0].narrow(0, all.size(1) - n, n)) < 1e-10);

          const int64_t count = static_cast<int64_t>(list.memory.size()) + n;  // of [memory; segment]
          const at::Tensor use = weights[s].sum(0).sum(0).narrow(0, weights.size(-1) - count, count);
          list.take(x[s], mixer, {use.const_data_ptr<double>(), use.const_data_ptr<double>() + count});
          CHECK(max_difference(reader.kept("compressed", s), stacked(list.compressed)) < 1e-10);
          if (memory > 0) CHECK(max_difference(reader.kept("memory", s), stacked(list.memory)) < 1e-12);
        }
      }
    }
}

TEST_CASE("without a second memory it is transformer-xl, and with a rate of one its memory of both lengths", "[xl]") {
  const int64_t n = 5;
  for (const int64_t slots : {0, 7}) {
    const BuiltMixer mixer = make("mean", 6, slots, 1), other = plain(6 + slots, mixer);
    Reader reader(mixer, 2), plain_reader(other, 2);
    for (int64_t segment = 0; segment < 5; ++segment) {
      const at::Tensor x = random_tensor("segment" + std::to_string(segment), {2, n, kWidth});
      const SequenceMask mask = segment == 4 ? length_mask({n, 3}, n, true) : SequenceMask{{}, true};
      CHECK(max_difference(valid_rows(reader(x, mask), mask), valid_rows(plain_reader(x, mask), mask)) < 1e-10);
    }
  }
}

TEST_CASE("both memories fill up as segments come", "[xl]") {
  const BuiltMixer mixer = make("mean", 8, 6, 2);
  Reader reader(mixer, 1);
  for (int64_t segments = 1; segments <= 7; ++segments) {
    (void)reader(random_tensor("segment" + std::to_string(segments), {1, 4, kWidth}));
    CHECK(reader.kept("memory", 0).size(0) == std::min<int64_t>(8, 4 * segments));
    CHECK(reader.kept("compressed", 0).size(0) == std::clamp<int64_t>((4 * segments - 8) / 2, 0, 6));
  }
}

TEST_CASE("rows that are no tokens are in no mean, no maximum, no choice, and zero in a convolution", "[xl]") {
  const int64_t n = 4;
  for (const char* function : {"mean", "max", "conv", "dilated", "most_used"}) {
    INFO(function);
    const BuiltMixer mixer = make(function, 0, 4, 2);
    const auto after = [&](double padding) {
      Reader reader(mixer, 2);
      at::Tensor x = random_tensor("x", {2, n, kWidth}).clone();
      x[1].narrow(0, 1, 3).fill_(padding);
      (void)reader(x, length_mask({n, 1}, n, true));
      CHECK(reader.state.at("layer0/compressed_valid")[1].to(at::kLong).equal(at::tensor({0, 0, 1, 0}, at::kLong)));
      return reader.kept("compressed", 1);
    };
    CHECK(after(3).equal(after(-80)));
  }
}

TEST_CASE("reconstruction is what its formula says, and trains the compression alone", "[xl]") {
  const int64_t n = 6, memory = 6, slots = 4, rate = 2;
  for (const char* function : {"conv", "dilated"}) {
    INFO(function);
    const BuiltMixer mixer = make(function, memory, slots, rate, {{"reconstruction_weight", 0.5}});
    mixer.module->train();
    Reader reader(mixer, 2);
    (void)reader(random_tensor("first", {2, n, kWidth}));
    CHECK(extra_loss(*mixer.module).item<double>() == 0);  // nothing has fallen out yet
    const at::Tensor old = reader.state.at("layer0/memory");
    const at::Tensor x = random_tensor("second", {2, n, kWidth}).requires_grad_(true);
    const at::Tensor out = reader(x);
    const at::Tensor fresh = reader.state.at("layer0/compressed").narrow(1, slots - n / rate, n / rate);
    const auto map = [&](const std::string& name, const at::Tensor& rows) {
      return at::linear(rows, tensor_of(mixer, name + ".weight"), tensor_of(mixer, name + ".bias"))
          .unflatten(-1, {2, 5})
          .transpose(1, 2);
    };
    const auto read = [&](const at::Tensor& rows) {
      return dense_softmax({map("query", x.detach()), map("key", rows), map("value", rows)});
    };
    const double expected = 0.5 * (read(old) - read(fresh)).square().mean().item<double>();
    const at::Tensor loss = extra_loss(*mixer.module);
    CHECK(loss.item<double>() == Approx(expected).epsilon(1e-10));
    CHECK(expected > 1e-4);

    loss.backward();
    for (const auto& [name, parameter] : mixer.parameters()) {
      INFO(name);
      if (name.starts_with("compress.")) CHECK(parameter.grad().abs().max().item<double>() > 1e-6);
      else CHECK((!parameter.grad().defined() || parameter.grad().abs().max().item<double>() == 0));
    }
    CHECK_FALSE(x.grad().defined());
    // The segment's own answers teach it nothing.
    const at::Tensor learned = mixer.module->named_parameters()["compress.weight"].grad().clone();
    out.square().sum().backward();
    CHECK(mixer.module->named_parameters()["compress.weight"].grad().equal(learned));
    CHECK(mixer.module->named_parameters()["key.weight"].grad().abs().max().item<double>() > 0);
    for (const auto& [name, tensor] : reader.state) CHECK_FALSE(tensor.requires_grad());
    mixer.module->eval();
    (void)reader(x);
    CHECK_FALSE(extra_loss(*mixer.module).defined());
  }
  const BuiltMixer mean = make("mean", memory, slots, rate),
                   off = make("conv", 6, 4, 2, {{"reconstruction_weight", 0}});
  for (const BuiltMixer* mixer : {&mean, &off}) {
    mixer->module->train();
    Reader reader(*mixer, 1);
    for (int i = 0; i < 3; ++i) (void)reader(random_tensor("x", {1, n, kWidth}));
    CHECK_FALSE(extra_loss(*mixer->module).defined());
  }
}

TEST_CASE("the gradient of reconstruction agrees with finite differences", "[xl]") {
  const BuiltMixer mixer = make("conv", 6, 4, 3);
  mixer.module->train();
  Reader filled(mixer, 1);
  (void)filled(random_tensor("first", {1, 6, kWidth}));
  const State state = filled.state;
  const auto loss = [&] {
    Reader reader(mixer, 1);
    reader.state = state;
    (void)reader(random_tensor("second", {1, 6, kWidth}));
    return extra_loss(*mixer.module);
  };
  loss().backward();
  const at::Tensor weight = mixer.module->named_parameters()["compress.weight"],
                   step = random_tensor("step", weight.sizes());
  const double got = (weight.grad() * step).sum().item<double>(), h = 1e-6;
  weight.data().add_(step, h);
  const double above = loss().item<double>();
  weight.data().add_(step, -2 * h);
  CHECK((above - loss().item<double>()) / (2 * h) == Approx(got).epsilon(1e-5));
}

TEST_CASE("compressive's names, defaults and parameters", "[xl]") {
  CHECK(resolve("compressive-transformer").name == "compressive");
  const Json options = full_options(resolve("compressive"));
  CHECK((options["compressor"] == "conv" && options["compression_rate"] == 4));
  const int64_t attention = 16640 + 64 * 64 + 2 * 64;
  CHECK(parameters_of("compressive", {}, true) == attention + 4 * 64 * 64 + 64);
  CHECK(parameters_of("compressive", {{"compressor", "mean"}}, true) == attention);
  CHECK(parameters_of("compressive", {{"compressed_memory", 0}}, true) == attention);
}

}  // namespace xformer::attention::compressive_test
