// Runs that write texts as their user meets them: trained, judged by ROUGE or F1, asked for a text of one's own.
#include "program.h"

namespace xformer::program_test {
namespace {

Words writer(const std::string& task, const std::string& more) {
  const std::string folder = task.substr(0, task.find('/'));
  return words(
      "train --task " + task + " --data " XFORMER_SOURCE "/datasets/" + folder + "/sample --model linear" +
      " --length 96 --set data.written=24 --set model.dim=16 --set model.heads=2 --set model.head_dim=8" +
      " --set model.layers=1 --set model.decoder_layers=1 --set model.ff_dim=16 --batch 4 --seed 3 --threads 1 " +
      more);
}

Json test_results(const Place& place) {
  const Json record = Json::parse(scratch::get(place / "run" / "record.json"));
  Json values = Json::object();
  for (const Json& result : record.at("metrics"))
    if (result.at("split") == "test") values[result.at("name").get<std::string>()] = result;
  return values;
}

TEST_CASE("a run of summaries is judged by ROUGE, and eval finds the same", "[generate]") {
  const Place place;
  const Outcome trained = place.run(writer("summarise/harbour", "--steps 6 --eval-every 3 --out run"));
  INFO(trained.err << trained.out);
  REQUIRE(trained.code == 0);
  const Json results = test_results(place);
  const std::string judge = "eval run --threads 1 --data " XFORMER_SOURCE "/datasets/summarise/sample";
  const Outcome judged = place.run(words(judge + " --json"));
  INFO(judged.err << results.dump());
  REQUIRE(judged.code == 0);
  const Json answer = Json::parse(judged.out);
  for (const char* const name : {"rouge1", "rouge2", "rougeL", "bits_per_byte"}) {
    CAPTURE(name);
    REQUIRE(results.contains(name));
    CHECK(answer.at(name) == results[name].at("value"));
  }
  CHECK(results["rouge1"].at("chance").get<double>() > 0);  // of one abstract for all
  const Outcome words_of_it = place.run(words(judge + " --split dev"));
  for (const char* const name : {"rouge1 ", "rouge2 ", "rougeL ", "bits_per_byte ", "loss "})
    CHECK(contains(words_of_it.out, name));
  const std::string predictions = scratch::get(place / "run" / "predictions.csv");
  CHECK(predictions.starts_with("index,written,right,rouge1,rouge2,rougeL\n"));
  CHECK(contains(predictions, " brought "));
}

TEST_CASE("generate writes about a text, the same each time, symbol by symbol or by several beams", "[generate]") {
  const Place place;
  REQUIRE(place.run(writer("summarise/harbour", "--steps 3 --out run")).code == 0);
  const Words ask = words("generate run --threads 1 --prompt Lisbon");
  const Outcome greedy = place.run(ask + "--beams 1");
  INFO(greedy.err);
  REQUIRE(greedy.code == 0);
  CHECK(greedy.out.ends_with("\n"));
  CHECK(contains(greedy.err, "symbols/s"));
  CHECK(place.run(ask + "--beams 1").out == greedy.out);
  const Outcome json = place.run(ask + "--beams 1" + "--json");
  REQUIRE(json.code == 0);
  const Json answer = Json::parse(json.out);
  CHECK(answer["text"].get<std::string>() + "\n" == greedy.out);
  CHECK((answer["task"] == "summarise/harbour" && answer["prompt"] == "Lisbon" && answer["search"]["beams"] == 1));
  CHECK(answer["bytes"].size() <= 24);
  const Json wide = Json::parse(place.run(ask + words("--beams 8 --length-penalty 0 --json")).out);
  CHECK(wide["search"]["beams"] == 8);
  CHECK(wide["log_probability"].get<double>() <= 0);
  // What is longer than what the model reads is cut, and that is said.
  scratch::put(place / "article", std::string(200, 'x'));
  CHECK(
      contains(place.run(words("generate run --threads 1 --prompt-file article")).err, "reads 96 symbols of the 200"));
  for (const auto& [command, told] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"generate run", {"--prompt is missing", "summarised"}},
           {"generate run --prompt a --question b", {"--question", "summarises"}},
           {"generate run --prompt a --temperature 2", {"--temperature", "--beams"}},
           {"generate run --prompt a --count 2", {"--count", "--beams"}}})
    check_case(place, command, 2, told);
}

TEST_CASE("a run of questions is judged by F1 and exact match, and answers about a text", "[generate]") {
  const Place place;
  const Outcome trained = place.run(writer("qa/harbour", "--steps 4 --out run"));
  INFO(trained.err << trained.out);
  REQUIRE(trained.code == 0);
  const Json results = test_results(place);
  CHECK((results.contains("f1") && results.contains("exact_match") && results.contains("bits_per_byte")));
  const Outcome answer =
      place.run(words("generate run --threads 1 --prompt Lisbon --json") + Words{"--question", "Where from?"});
  INFO(answer.err);
  REQUIRE(answer.code == 0);
  CHECK(Json::parse(answer.out)["question"] == "Where from?");
  check_case(place, "generate run --prompt a", 2, {"--question is missing"});
}

TEST_CASE("tasks and families that do not fit together are told apart before any data is opened", "[generate]") {
  const Place place;
  const std::string task = "train --task summarise/harbour --data nowhere --model ";
  check_case(place, task + "encoder/linear", 2, {"an answer at every place", "encoder-decoder/linear"});
  check_case(place, task + "decoder/linear", 2, {"decoder family"});
  check_case(place, "train --task listops --model encoder-decoder/linear", 2, {"encoder-decoder", "encoder/linear"});
  check_case(place, task + "linear --set model.decoder_attention=linformer", 2,
             {"model.decoder_attention", "no causal form"});
  check_case(place, task + "linear --set model.cross_attention=local-window", 2, {"model.cross_attention"});
}

}  // namespace
}  // namespace xformer::program_test
