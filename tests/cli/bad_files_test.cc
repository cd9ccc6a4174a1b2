// Files that are damaged, incomplete or of another kind: exit 4, the file and the field named, a remedy said,
// and nothing large allocated before.
#include <gmock/gmock.h>

#include "cli/model_files.h"

namespace snug::program {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kSmall = 60ll << 20;

void expect_bad(const fs::path& model, const std::vector<std::string>& named,
                std::vector<std::string> more = {}, int exit_code = 4) {
  std::vector<std::string> args = {"run", model, "--max-tokens", "1", "--json"};
  if (more.empty()) more = {"--token-ids", "5,6,7"};
  args.insert(args.end(), more.begin(), more.end());
  const Outcome outcome = run_snug(args);
  SCOPED_TRACE(outcome.err);
  EXPECT_EQ(outcome.exit_code, exit_code);
  const Json error = outcome.json()["error"];
  EXPECT_EQ(error["code"], exit_code);
  for (const auto& part : named) EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(part));
  EXPECT_NE(error["remedy"], "");
  EXPECT_THAT(outcome.err, HasSubstr(error["remedy"].get<std::string>())) << "people see it too";
  if (!kSanitized) {
    EXPECT_LT(outcome.peak_bytes, kSmall);
  }
}

class BadFiles : public testing::Test {
 protected:
  void SetUp() override { SNUG_NEEDS_GOLDEN_MODELS(); }
  void use(const std::string& model) { copy_model(model, folder_.path()); }
  fs::path weights() const { return folder_ / "model.safetensors"; }
  fs::path config() const { return folder_ / "config.json"; }
  const TempFolder folder_;
};

TEST_F(BadFiles, SafetensorsCutOff) {
  use("qwen2-mha");
  const auto size = fs::file_size(weights());
  for (const std::uintmax_t kept :
       {size - 1, size / 2, std::uintmax_t{100}, std::uintmax_t{8}, std::uintmax_t{4}}) {
    fs::resize_file(weights(), kept);
    expect_bad(folder_.path(), {weights(), "cut off", std::to_string(kept)});
  }
  fs::resize_file(weights(), 0);
  expect_bad(folder_.path(), {weights(), "empty"});
}

TEST_F(BadFiles, SafetensorsHeaderTooLarge) {
  use("qwen2-mha");
  for (const std::uint64_t size :
       {std::uint64_t{1} << 63, std::uint64_t{1} << 40, std::uint64_t{50'000'000}, ~std::uint64_t{0}}) {
    patch(weights(), 0, &size, sizeof(size));
    expect_bad(folder_.path(), {weights(), "header size"});
  }
}

TEST_F(BadFiles, SafetensorsHeaderNotJson) {
  use("qwen2-mha");
  patch(weights(), 9, "\x01\x02\x03", 3);
  expect_bad(folder_.path(), {weights(), "header"});
  patch(weights(), 8, "[", 1);
  expect_bad(folder_.path(), {weights(), "header"});
}

TEST_F(BadFiles, SafetensorsOffsetsOverlapOrLeaveHoles) {
  const std::string norm = "model.layers.0.input_layernorm.weight";
  for (const int shift : {-16, 16}) {
    use("qwen2-mha");
    edit_header(weights(), [&](OrderedJson& header) {
      for (auto& offset : header[norm]["data_offsets"]) offset = offset.get<std::int64_t>() + shift;
    });
    expect_bad(folder_.path(), {weights(), "data_offsets", shift < 0 ? "overlap" : "hole"});
  }
  for (const auto& offsets : {OrderedJson{-1, 255}, OrderedJson{0}, OrderedJson{256, 0}, OrderedJson{0, 1e30},
                              OrderedJson{"0", "256"}}) {
    use("qwen2-mha");
    edit_header(weights(), [&](OrderedJson& header) { header[norm]["data_offsets"] = offsets; });
    expect_bad(folder_.path(), {weights(), "data_offsets"});
  }
}

TEST_F(BadFiles, SafetensorsOfAnotherType) {
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  for (const auto& [dtype, why] : {std::pair{"I64", "I64 is not a supported type"},
                                   {"F8_E4M3", "F8_E4M3 is not a supported type"},
                                   {"F32", "its shape and dtype need"}}) {
    use("qwen2-mha");
    edit_header(weights(), [&](OrderedJson& header) { header[name]["dtype"] = dtype; });
    expect_bad(folder_.path(), {weights(), name, "dtype", why});
  }
}

TEST_F(BadFiles, SafetensorsOfAnotherShape) {
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  for (const auto& shape : {OrderedJson{64, 256}, OrderedJson{16384}, OrderedJson{128, 64, 2}}) {
    use("qwen2-mha");
    edit_header(weights(), [&](OrderedJson& header) { header[name]["shape"] = shape; });
    expect_bad(folder_.path(), {name, "128"});
  }
  for (const auto& shape :
       {OrderedJson{128, 0}, OrderedJson{128, 127}, OrderedJson{1e18, 1e18}, OrderedJson{-128, -128}}) {
    use("qwen2-mha");
    edit_header(weights(), [&](OrderedJson& header) { header[name]["shape"] = shape; });
    expect_bad(folder_.path(), {weights(), name});
  }
}

TEST_F(BadFiles, TensorsMissingOrOfAnotherName) {
  use("qwen2-mha");
  edit_header(weights(), [&](OrderedJson& header) {
    OrderedJson renamed = OrderedJson::object();
    for (const auto& [key, value] : header.items()) {
      renamed[key == "model.layers.1.mlp.up_proj.weight" ? "model.layers.1.mlp.uq_proj.weight" : key] = value;
    }
    header = renamed;
  });
  expect_bad(folder_.path(), {"model.layers.1.mlp.up_proj.weight"});
}

TEST_F(BadFiles, ANormThatIsNotFinite) {
  use("qwen2-mha");
  const std::string bytes = read_file(weights());
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  const std::string name = "model.layers.0.input_layernorm.weight";
  const auto offset = OrderedJson::parse(bytes.substr(8, size))[name]["data_offsets"][0].get<std::uint64_t>();
  const std::uint16_t nan = 0x7FC0;
  patch(weights(), 8 + size + offset, &nan, sizeof(nan));
  expect_bad(folder_.path(), {name, "NaN"});
}

TEST_F(BadFiles, ShardsMissing) {
  use("qwen2-h128");
  fs::remove(folder_ / "model-00003-of-00005.safetensors");
  expect_bad(folder_.path(),
             {"model.safetensors.index.json", "weight_map", "model-00003-of-00005.safetensors"});
  fs::remove(folder_ / "model.safetensors.index.json");
  expect_bad(folder_.path(), {"model.safetensors.index.json is missing"});
}

TEST_F(BadFiles, IndexesThatNameWhatIsNotThere) {
  const fs::path index = folder_ / "model.safetensors.index.json";
  use("qwen2-h128");
  const std::string whole = read_file(index);
  edit_json(index, [](OrderedJson& json) {
    json["weight_map"]["model.layers.9.x"] = "model-00001-of-00005.safetensors";
  });
  expect_bad(folder_.path(), {index, "model.layers.9.x"});
  for (const char* name : {"../model.safetensors", "/etc/passwd", "x/y.safetensors", "model.bin"}) {
    write_file(index, whole);
    edit_json(index, [&](OrderedJson& json) { json["weight_map"]["lm_head.weight"] = name; });
    expect_bad(folder_.path(), {index, "lm_head.weight"});
  }
  write_file(index, whole);
  edit_json(index, [](OrderedJson& json) { json.erase("weight_map"); });
  expect_bad(folder_.path(), {index, "weight_map"});
  write_file(index, whole.substr(0, whole.size() / 2));
  expect_bad(folder_.path(), {index, "JSON"});
}

std::vector<std::string> greedy(const fs::path& folder, const Json& prompt) {
  return {"run",           folder, "--token-ids", joined(prompt.get<std::vector<int>>()),
          "--temperature", "0",    "--dtype",     "float32",
          "--max-tokens",  "24",   "--ignore-eos"};
}

TEST_F(BadFiles, AStaleIndexIsRebuiltWithAWarning) {
  use("qwen2-h128");
  edit_json(folder_ / "model.safetensors.index.json", [](OrderedJson& json) {
    auto& map = json["weight_map"];
    std::swap(map["lm_head.weight"], map["model.embed_tokens.weight"]);
    map.erase("model.norm.weight");
  });
  const Json inspected = run_json({"inspect", folder_.path()});
  ASSERT_EQ(inspected["warnings"].size(), 2u);
  EXPECT_THAT(inspected["warnings"].dump(), HasSubstr("lm_head.weight"));
  EXPECT_THAT(inspected["warnings"].dump(), HasSubstr("model.norm.weight"));

  const Json expected = Json::parse(read_file(golden_model("qwen2-h128") / "golden.json"))["cases"][4];
  auto args = greedy(folder_.path(), expected["prompt"]);
  args.emplace_back("--json");
  const Outcome outcome = run_snug(args);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["token_ids"], expected["greedy"]);
  EXPECT_THAT(outcome.err, HasSubstr("out of date"));
  args.emplace_back("--quiet");
  EXPECT_EQ(run_snug(args).err, "");
}

// Names come from the index alone, whatever they look like.
TEST_F(BadFiles, OddShardNamesAreGood) {
  use("qwen2-h128");
  const fs::path index = folder_ / "model.safetensors.index.json";
  std::string text = read_file(index);
  for (int i = 1; i <= 5; ++i) {
    const std::string number = std::to_string(i);
    const std::string from = "model-0000" + number + "-of-00005.safetensors";
    const std::string to =
        i == 1 ? "model-00001-of-000005.safetensors" : "part " + number + ".v2.safetensors";
    fs::rename(folder_ / from, folder_ / to);
    for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos;)
      text.replace(at, from.size(), to);
  }
  write_file(index, text);
  const Json expected = Json::parse(read_file(golden_model("qwen2-h128") / "golden.json"))["cases"][2];
  EXPECT_EQ(run_json(greedy(folder_.path(), expected["prompt"]))["token_ids"], expected["greedy"]);
}

TEST_F(BadFiles, ConfigsThatAreBroken) {
  use("qwen2-mha");
  const std::string whole = read_file(config());
  struct Case {
    const char* field;
    OrderedJson value;
  };
  for (const auto& [field, value] :
       std::vector<Case>{{"num_attention_heads", "4"},
                         {"num_attention_heads", 0},
                         {"num_attention_heads", 3},
                         {"num_key_value_heads", 3},
                         {"hidden_size", -1},
                         {"hidden_size", 1e18},
                         {"num_hidden_layers", 2000000000},
                         {"vocab_size", nullptr},
                         {"intermediate_size", 320.5},
                         {"rms_norm_eps", "small"},
                         {"tie_word_embeddings", 1},
                         {"model_type", "mamba"},
                         {"eos_token_id", "end"},
                         {"quantization_config", OrderedJson{{"quant_method", "awq"}}}}) {
    write_file(config(), whole);
    set_field(config(), field, value);
    SCOPED_TRACE(std::string(field) + " " + value.dump());
    expect_bad(folder_.path(), {config(), field});
  }
  for (const std::string& text : {whole.substr(0, whole.size() / 2), std::string("[1]"), std::string(),
                                  std::string(100000, '['), std::string("{\"a\": \"\xff\"}")}) {
    write_file(config(), text);
    expect_bad(folder_.path(), {config()});
  }
  // A config that does not belong to the weights.
  write_file(config(), whole);
  set_field(config(), "num_hidden_layers", 3);
  expect_bad(folder_.path(), {config(), "layer_types"});
  edit_json(config(), [](OrderedJson& json) { json.erase("layer_types"); });
  expect_bad(folder_.path(), {"model.layers.2."});
  set_field(config(), "num_hidden_layers", 1);
  expect_bad(folder_.path(), {"model.layers.1."});
  fs::remove(config());
  expect_bad(folder_.path(), {"config.json is missing"});
}

TEST_F(BadFiles, GenerationConfigsThatAreBroken) {
  use("qwen2-mha");
  const fs::path file = folder_ / "generation_config.json";
  for (const auto& [field, value] : std::vector<std::pair<std::string, OrderedJson>>{{"temperature", "hot"},
                                                                                     {"temperature", -1},
                                                                                     {"top_p", 0},
                                                                                     {"top_k", 1.5},
                                                                                     {"eos_token_id", -1},
                                                                                     {"do_sample", "yes"}}) {
    write_file(file, OrderedJson{{field, value}}.dump());
    expect_bad(folder_.path(), {file, field});
  }
  write_file(file, "{");
  expect_bad(folder_.path(), {file});
}

TEST_F(BadFiles, WhatIsNotAModel) {
  const TempFolder& f = folder_;
  expect_bad(f / "none", {f / "none"});
  expect_bad(f.path(), {"config.json is missing"});
  write_file(f / "notes.txt", "hello");
  expect_bad(f / "notes.txt", {"notes.txt", "not a model"});
  write_file(f / "adapter_config.json",
             R"({"base_model_name_or_path": "Qwen/Qwen2.5-0.5B", "peft_type": "LORA"})");
  write_file(f / "adapter_model.safetensors", "x");
  expect_bad(f.path(), {"adapter_config.json", "Qwen/Qwen2.5-0.5B", "base_model_name_or_path"});

  const TempFolder pickles;
  write_file(pickles / "config.json", read_file(golden_model("qwen2-mha") / "config.json"));
  write_file(pickles / "pytorch_model.bin", "x");
  expect_bad(pickles.path(), {"pytorch_model.bin", "pickle"});
  expect_bad(pickles / "pytorch_model.bin", {"pytorch_model.bin", "pickle"});

  use("qwen2-mha");
  expect_bad(f / "model.safetensors", {"model.safetensors", "one file of a checkpoint"});
}

class BadGguf : public testing::Test {
 protected:
  void SetUp() override {
    source_ = fs::path(SNUG_GOLDEN_DIR) / "gguf" / "tiny-q4_0.gguf";
    if (!fs::exists(source_)) GTEST_SKIP() << "the reference model is not at " << source_;
    restore();
  }
  void restore() { write_file(file(), read_file(source_)); }
  fs::path file() const { return folder_ / "m.gguf"; }
  fs::path source_;
  const TempFolder folder_;
};

TEST_F(BadGguf, CutOff) {
  const auto size = fs::file_size(file());
  for (const std::uintmax_t kept :
       {size - 1, size / 2, std::uintmax_t{4000}, std::uintmax_t{23}, std::uintmax_t{5}}) {
    fs::resize_file(file(), kept);
    expect_bad(file(), {file()});
  }
}

TEST_F(BadGguf, AbsurdCounts) {
  for (const std::size_t at : {8u, 16u}) {  // of tensors, of metadata
    for (const std::uint64_t count :
         {std::uint64_t{1} << 62, ~std::uint64_t{0}, std::uint64_t{1} << 32, std::uint64_t{1'000'000}}) {
      restore();
      patch(file(), at, &count, sizeof(count));
      expect_bad(file(), {file(), "count"});
    }
  }
  // The first metadata entry: the length of its key, then (after its type) of its value.
  restore();
  const std::uint64_t length = std::uint64_t{1} << 60;
  patch(file(), 24, &length, sizeof(length));
  expect_bad(file(), {file()});
}

TEST_F(BadGguf, AnotherVersionOrKind) {
  const std::uint32_t version = 99;
  patch(file(), 4, &version, sizeof(version));
  expect_bad(file(), {file(), "version"});
  restore();
  patch(file(), 0, "GGML", 4);
  expect_bad(file(), {file()});
}

class BadTemplate : public testing::Test {
 protected:
  void SetUp() override {
    SNUG_NEEDS_GOLDEN_MODELS();
    chat_model(folder_.path());
  }
  void expect(const std::string& text, int exit_code, const std::vector<std::string>& named) {
    write_file(folder_ / "chat_template.jinja", text);
    SCOPED_TRACE(text.substr(0, 100));
    expect_bad(folder_.path(), named, {"--chat", "-p", "hi"}, exit_code);
  }
  const TempFolder folder_;
};

TEST_F(BadTemplate, OnesThatDoNotEndAreStopped) {
  for (const char* body : {"x", "", "{% set y = i %}"}) {
    expect(std::string("{% for i in range(100000) %}{% for j in range(100000) %}") + body +
               "{% endfor %}{% endfor %}",
           2, {"chat_template.jinja"});
  }
  expect("{{ 'x' * 1000000000000 }}", 2, {"chat_template.jinja"});
  expect("{{ range(1000000000000) | list }}", 2, {"chat_template.jinja"});
  expect("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", 2, {"chat_template.jinja"});
}

TEST_F(BadTemplate, OnesThatDoNotParseOrRefuse) {
  expect("{% for m in messages %}", 4, {"chat_template.jinja"});
  expect("{{ " + std::string(100000, '('), 4, {"chat_template.jinja"});
  expect("{{ raise_exception('only with images') }}", 2, {"only with images"});
}

TEST_F(BadTemplate, TokenizersThatAreBroken) {
  const fs::path file = folder_ / "tokenizer.json";
  const std::string whole = read_file(file);
  const auto with = [&](const std::string& text) {
    write_file(file, text);
    expect_bad(folder_.path(), {file}, {"-p", "hi"});
  };
  with(whole.substr(0, whole.size() / 2));
  with("[]");
  with(OrderedJson{{"model", {{"type", "Unigram"}}}}.dump());
  edit_json(file, [&](OrderedJson& json) {
    json = OrderedJson::parse(whole);
    json["added_tokens"][0]["id"] = -5;
  });
  with(read_file(file));
  edit_json(file, [&](OrderedJson& json) {
    json = OrderedJson::parse(whole);
    json["model"]["merges"] = {"a b c"};
  });
  with(read_file(file));
}

}  // namespace
}  // namespace snug::program
