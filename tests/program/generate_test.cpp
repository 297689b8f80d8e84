// `xformer generate` as its user meets it: texts, images, the same again for a seed, and what is refused.
#include "cifar_batches.h"
#include "core/hash.h"
#include "program.h"
#include "readers/png.h"

namespace xformer::program_test {
namespace {

using scratch::put;

Words decoder(const std::string& task, const std::string& more) {
  return words("train --task " + task + " --model linear --seed 3 --threads 1 --set model.dim=16 --set model.heads=2" +
               " --set model.head_dim=8 --set model.layers=1 --set model.ff_dim=16 --batch 4 " + more);
}

Words notes(const std::string& more = "") {
  return decoder("bytes/notes", "--data " XFORMER_SOURCE "/datasets/bytes/sample/notes --length 32 " + more);
}

TEST_CASE("generate continues a prompt, the same for a seed and another for another", "[generate]") {
  const Place place;
  REQUIRE(place.run(notes("--steps 6 --out run")).code == 0);
  const Outcome first = place.run(words("generate run --prompt Attention --length 50 --threads 1"));
  INFO(first.err);
  REQUIRE(first.code == 0);
  CHECK(first.out.starts_with("Attention"));
  CHECK(first.out.ends_with("\n"));
  CHECK(contains(first.err, "50 bytes in "));
  CHECK(contains(first.err, "bytes/s"));
  CHECK(place.run(words("generate run --prompt Attention --length 50 --threads 1")).out == first.out);
  CHECK(place.run(words("generate run --prompt Attention --length 50 --threads 1 --seed 1")).out != first.out);

  // What JSON tells is what is shown, of as many texts as were asked for; lengths above the model's 32 places go on.
  const Outcome json = place.run(
      words("generate run --prompt Attention --length 50 --count 3 --threads 1 --top-k 200 --top-p 0.99 --json"));
  INFO(json.err);
  REQUIRE(json.code == 0);
  const Json answer = Json::parse(json.out);
  CHECK(answer["task"] == "bytes/notes");
  CHECK(answer["prompt"] == "Attention");
  CHECK((answer["sampling"]["top_k"] == 200 && answer["sampling"]["top_p"] == 0.99));
  REQUIRE(answer["sequences"].size() == 3);
  CHECK(answer["sequences"][0] != answer["sequences"][1]);
  for (const Json& sequence : answer["sequences"]) CHECK(sequence["bytes"].size() == 50);
  const Outcome three =
      place.run(words("generate run --prompt Attention --length 50 --count 3 --threads 1 --top-k 200 --top-p 0.99"));
  CHECK(contains(three.out, "--- 3 of 3"));
  for (const Json& sequence : answer["sequences"])
    CHECK(contains(three.out, "Attention" + sequence["text"].get<std::string>()));

  // Greedy draws nothing; a file's bytes are a prompt too, whatever they are; none begins at the stream's start.
  put(place / "prompt", "Attention");
  const Words greedy = words("generate run --length 40 --threads 1 --greedy --count 2 --json");
  const Json one = Json::parse(place.run(greedy + "--prompt Attention").out);
  CHECK(one["sequences"][0] == one["sequences"][1]);
  CHECK(Json::parse(place.run(greedy + "--prompt-file prompt").out)["sequences"] == one["sequences"]);
  put(place / "odd", "\xff\x1b");
  CHECK(Json::parse(place.run(greedy + "--prompt-file odd").out)["prompt"] == "\\xff\\x1b");
  CHECK(Json::parse(place.run(words("generate run --threads 1 --json")).out)["sequences"][0]["bytes"].size() == 256);
}

TEST_CASE("generate takes the weights that eval takes, of a run that was stopped too", "[generate]") {
  const Place place;
  REQUIRE(place.run(notes("--steps 8 --stop-after 5 --out run")).code == 0);
  REQUIRE_FALSE(std::filesystem::exists(place / "run" / "model.safetensors"));
  const Outcome outcome = place.run(words("generate run --prompt a --length 5 --json"));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.err, "checkpoint of step 5"));  // which weights they are
  std::filesystem::remove_all(place / "run" / "checkpoints");
  check_case(place, "generate run --prompt a", 2, {"run holds neither", "checkpoint"});
}

TEST_CASE("generate of text8 speaks its 27 characters", "[generate]") {
  const Place place;
  std::string text;
  while (text.size() < 4000) text += "the quick brown fox jumps over the lazy dog ";
  put(place / "text8", text);
  REQUIRE(place.run(decoder("bytes/text8", "--data text8 --length 16 --steps 2 --out run")).code == 0);
  const Outcome outcome = place.run(words("generate run --prompt fox --length 60 --threads 1"));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.out.find_first_not_of("abcdefghijklmnopqrstuvwxyz ") == 63);  // the line's end
  CHECK(contains(outcome.err, "60 characters in "));
  check_case(place, "generate run --prompt foX", 2, {"--prompt: byte 2 is 'X'", "a blank or a letter from a to z"});
}

TEST_CASE("generate draws the images of a density as PNG", "[generate]") {
  const Place place;
  std::filesystem::create_directory(place / "cifar");
  for (int i = 1; i <= 5; ++i)
    put(place / "cifar" / fmt::format("data_batch_{}.bin", i),
        scratch::binary_batch(scratch::cifar_images(10, static_cast<size_t>(i) * 100)));
  put(place / "cifar" / "test_batch.bin", scratch::binary_batch(scratch::cifar_images(3)));
  const Outcome trained = place.run(decoder("cifar10-density", "--data cifar --steps 1 --out run"));
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  put(place / "row", std::string(96, '\x40'));
  const Outcome outcome =
      place.run(words("generate run --count 2 --png pictures --prompt-file row --seed 7 --threads 1 --json"));
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const Json answer = Json::parse(outcome.out);
  REQUIRE(answer["sequences"].size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const Path file = place / "pictures" / fmt::format("cifar10-density-seed7-{}.png", i);
    CHECK(answer["sequences"][i]["file"] == fmt::format("pictures/cifar10-density-seed7-{}.png", i));
    const std::string bytes = scratch::get(file);
    const readers::Image image = readers::decode_png(std::as_bytes(std::span(bytes)), 3, "image");
    CHECK((image.width == 32 && image.height == 32));
    // The first row is the prompt, the others are what was drawn.
    CHECK(std::count(image.pixels.begin(), image.pixels.begin() + 96, 0x40) == 96);
    CHECK(std::vector<int>(image.pixels.begin() + 96, image.pixels.end()) ==
          answer["sequences"][i]["bytes"].get<std::vector<int>>());
  }
  CHECK(contains(outcome.err, "5,952 bytes in "));
  put(place / "whole", std::string(3072, 'x'));
  check_case(place, "generate run --png p --prompt-file whole", 2, {"--prompt-file", "at most 3071, got 3072"});
  check_case(place, "generate run", 2, {"--png DIR is missing", "cifar10-density"});
  check_case(place, "generate run --png p --length 5", 2, {"--length", "its own length"});
}

TEST_CASE("generate answers wrong words and runs that make nothing", "[generate]") {
  const Place place;
  REQUIRE(place.run(notes("--steps 2 --out run")).code == 0);
  REQUIRE(place.run(tiny("linear", "--steps 2 --out encoder")).code == 0);
  REQUIRE(place
              .run(decoder("mqar",
                           "--set data.train_examples=16 --set data.dev_examples=4 --set "
                           "data.test_examples=4 --steps 1 --out recall"))
              .code == 0);
  std::filesystem::create_directory(place / "empty");
  put(place / "prompt", "a");
  const struct {
    std::string arguments;
    int code;
    Words parts;
  } cases[] = {
      {"generate", 2, {"RUN_DIR"}},
      {"generate nowhere", 2, {"nowhere", "plan.json"}},
      {"generate empty", 2, {"empty", "plan.json"}},
      {"generate encoder",
       2,
       {"encoder is a run of listops", "expected", "bytes/<name>, cifar10-density, image-density"}},
      {"generate recall", 2, {"recall is a run of mqar", "bytes/<name>"}},
      {"generate run --prompt " + std::string(33, 'a'), 2, {"reads 32 bytes at once", "at most 32, got 33"}},
      {"generate run --prompt a --prompt-file prompt", 2, {"one of them"}},
      {"generate run --prompt-file none", 3, {"none"}},
      {"generate run --temperature 0", 2, {"--temperature", "a number above 0", "'0'"}},
      {"generate run --temperature -1", 2, {"--temperature", "a number above 0", "'-1'"}},
      {"generate run --temperature nan", 2, {"--temperature", "a number above 0", "'nan'"}},
      {"generate run --top-p 0", 2, {"--top-p", "above 0 and up to 1", "'0'"}},
      {"generate run --top-p 1.5", 2, {"--top-p", "above 0 and up to 1", "'1.5'"}},
      {"generate run --top-k 0", 2, {"--top-k", "from 1", "'0'"}},
      {"generate run --top-k 257", 2, {"--top-k", "256 bytes", "257"}},
      {"generate run --greedy --temperature 2", 2, {"--temperature", "--greedy"}},
      {"generate run --greedy --seed 2", 2, {"--seed", "--greedy"}},
      {"generate run --count 0", 2, {"--count", "from 1"}},
      {"generate run --length 0", 2, {"--length", "from 1"}},
      {"generate run --png pictures", 2, {"--png", "texts"}},
      {"generate run --promt x", 2, {"'--promt'", "'--prompt'?"}},
      {"complete gener", 0, {"generate"}},
      {"complete generate run --prompt-", 0, {"--prompt-file"}},
  };
  for (const auto& entry : cases) check_case(place, entry.arguments, entry.code, entry.parts);
  CHECK_FALSE(std::filesystem::exists(place / "pictures"));
}

}  // namespace
}  // namespace xformer::program_test
