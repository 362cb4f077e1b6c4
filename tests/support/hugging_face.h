// PyTorch's stored values for tiny Hugging Face models (tests/reference/README.md), and how near to them ours must be.
#pragma once
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "io/safetensors.h"
#include "tests/support/compare.h"

namespace trainer::test {

using Tensors = std::map<std::string, Values>;

// Every tensor of a file of F32 and I32.
inline Tensors read_tensors(const std::string& folder, const std::string& file) {
  const File f = open_beneath(open_directory(folder, Exit::checkpoint), file, Exit::checkpoint);
  Tensors tensors;
  for (const SafetensorsEntry& e : read_safetensors_header(f).tensors) {
    test::Buffer buffer(e.type->name == "F32" ? DType::f32 : DType::i32, {int64_t(e.bytes() / 4)});
    read_exactly(f, {buffer.tensor().data, size_t(e.bytes())}, e.begin, Exit::checkpoint);
    tensors[e.name] = buffer.values();
  }
  return tensors;
}

// |actual - wanted| <= 1e-4 |wanted| in norm, over the elements that count.
template <class Counts>
void check_near(const Values& actual, const Values& wanted, Counts&& counts) {
  REQUIRE(actual.size() == wanted.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!counts(i)) continue;
    difference += std::pow(actual[i] - wanted[i], 2);
    size += std::pow(wanted[i], 2);
  }
  CHECK(std::sqrt(difference) <= 1e-4 * std::sqrt(size));
}

class HuggingFaceReference {
 public:
  static constexpr int64_t kSequences = 2, kSeqLen = 24, kSteps = 3;

  explicit HuggingFaceReference(const std::string& name)
      : folder(std::string(TESTS_DIR) + "/data/hf/" + name),
        record(nlohmann::json::parse(std::ifstream(folder + "/reference.json"))),
        before(read_tensors(folder, "model.safetensors")),
        values(read_tensors(folder, "reference.safetensors")) {}

  // Of "tokens" or "targets": `count` sequences of a step, from the `first` on.
  std::vector<int32_t> sequences(const std::string& field, int64_t step, int64_t first = 0,
                                 int64_t count = kSequences) const {
    const auto begin = values.at(field).begin() + (step * kSequences + first) * kSeqLen;
    return {begin, begin + count * kSeqLen};
  }
  double loss(int64_t step) const { return record["losses"][size_t(step)]; }
  double gradient_norm(int64_t step) const { return record["gradient_norms"][size_t(step)]; }

  // Of the mean loss of step 0.
  void check_gradients(const Tensors& found) const {
    CHECK(found.size() == before.size());
    for (const auto& [name, gradient] : found) {
      INFO("gradient of " << name);
      check_near(gradient, values.at("gradient." + name), [](size_t) { return true; });
    }
  }
  // After three steps.
  void check_weights(const Tensors& found) const {
    CHECK(found.size() == before.size());
    for (const auto& [name, weight] : found) {
      INFO("weight of " << name);
      const Values& wanted = values.at("weight." + name);
      check_near(weight, wanted, [&, &name = name](size_t i) { return !true_zero(name, i); });
      for (size_t i = 0; i < weight.size(); ++i)  // Adam's steps there are noise over noise, at most lr each
        if (true_zero(name, i)) CHECK(std::abs(weight[i] - wanted[i]) < 7 * record["optimizer"]["lr"].get<double>());
    }
  }

  std::string folder;
  nlohmann::json record;
  Tensors before, values;

 private:
  // Elements whose gradient is zero in exact arithmetic.
  bool true_zero(const std::string& tensor, size_t i) const {
    for (const nlohmann::json& z : record["true_zero_gradients"])
      if (z["tensor"] == tensor && i >= z["begin"] && i < z["end"]) return true;
    return false;
  }
};

}  // namespace trainer::test
