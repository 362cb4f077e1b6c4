// Algorithms of products: searched, written, read again.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "kernels/cuda/cublaslt_api.h"
#include "run_op.h"
#include "tests/cuda/matmul_settings.h"
#include "tests/fakecuda/fake_cuda.h"
#include "tests/matmul/product.h"

using namespace trainer;
using namespace trainer::test;

namespace {

const ProductCase kProduct{16, 16, 1024};                                            // f32: an order of sums shows
const ProductCase kOther{16, 24, 1024, DType::bf16, DType::f32, true, false, true};  // as a weight gradient

class File {
 public:
  File() : path_(std::filesystem::temp_directory_path() / ("trainer-algorithms-" + std::to_string(getpid()))) {}
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

 private:
  std::string path_;
};

std::vector<std::byte> product(const ProductCase& p) {
  const ProductData data(p);
  run_op(data.op);
  return data.c.bytes();
}
void prepare(const ProductCase& p) {
  const ProductData data(p);
  OneStream stream(cuda::scratch_bytes(data.op));
  cuda::prepare(stream, data.op);
}
// A file with both products.
void search(const File& file) {
  cuda::set_matmul_policy({.search = true});
  prepare(kProduct);
  prepare(kOther);
  cuda::save_heuristics(file.path());
}
std::string with_line(const std::string& text, size_t number, const std::string& line) {
  std::string result;
  size_t at = 0;
  for (size_t i = 1; at < text.size(); ++i) {
    const size_t end = text.find('\n', at);
    result += (i == number ? line : text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return result;
}
std::string line_of(const std::string& text, size_t number) {
  size_t at = 0;
  for (size_t i = 1; i < number; ++i) at = text.find('\n', at) + 1;
  return text.substr(at, text.find('\n', at) - at);
}

}  // namespace

TEST_CASE("algorithms: the first suggestion without a file, the same in every run") {
  const MatmulSettings settings;
  const auto first = product(kProduct);
  MatmulSettings::reset();
  REQUIRE(product(kProduct) == first);
  prepare(kProduct);  // which does not search unless it is told to
  REQUIRE(product(kProduct) == first);
}

TEST_CASE("algorithms: the fastest is found, written, and taken by later runs") {
  const MatmulSettings settings;
  const File file;
  const auto first = product(kProduct), first_other = product(kOther);
  fake::cublaslt_settings().slow = 0;  // the first that is suggested: another is faster
  search(file);
  fake::cublaslt_settings().slow = -1;
  const auto found = product(kProduct), found_other = product(kOther);
  REQUIRE(found != first);
  REQUIRE(found_other != first_other);

  MatmulSettings::reset();
  REQUIRE(product(kProduct) == first);
  REQUIRE(cuda::load_heuristics(file.path()));
  REQUIRE(product(kProduct) == found);
  REQUIRE(product(kOther) == found_other);
}

TEST_CASE("algorithms: what a file holds is not searched again; what it holds of other GPUs is kept") {
  const MatmulSettings settings;
  const File file;
  search(file);
  const std::string both = file.text();
  REQUIRE(std::count(both.begin(), both.end(), '\n') == 4);
  std::string other_gpu = line_of(both, 3);
  other_gpu.replace(0, other_gpu.find(" | "), "Another GPU");
  file.write(both + other_gpu + "\n");
  MatmulSettings::reset();
  REQUIRE(cuda::load_heuristics(file.path()));
  cuda::set_matmul_policy({.search = true});
  const uint64_t gemms = fake::counters.gemms;
  prepare(kProduct);
  prepare(kOther);
  REQUIRE(fake::counters.gemms == gemms);
  cuda::save_heuristics(file.path());
  REQUIRE(file.text().find(line_of(both, 3)) != std::string::npos);
  REQUIRE(file.text().find(line_of(both, 4)) != std::string::npos);
  REQUIRE(file.text().find(other_gpu) != std::string::npos);
  REQUIRE(file.text().size() == both.size() + other_gpu.size() + 1);
}

TEST_CASE("algorithms: another version of cuBLASLt searches again") {
  const MatmulSettings settings;
  const File file;
  search(file);
  std::string text = file.text();
  const std::string version = " | " + std::to_string(cuda::cublaslt().cublasLtGetVersion()) + " | ";
  for (size_t at; (at = text.find(version)) != std::string::npos;) text.replace(at, version.size(), " | 120000 | ");
  file.write(text);
  MatmulSettings::reset();
  REQUIRE(cuda::load_heuristics(file.path()));
  cuda::set_matmul_policy({.search = true});
  const uint64_t gemms = fake::counters.gemms;
  prepare(kProduct);
  REQUIRE(fake::counters.gemms > gemms);
}

TEST_CASE("algorithms: a bad file is refused with its line") {
  const MatmulSettings settings;
  const File file;
  search(file);
  const std::string good = file.text(), third = line_of(good, 3);
  const auto refused = [&](const std::string& text, const std::string& message) {
    file.write(text);
    REQUIRE_THROWS_WITH(cuda::load_heuristics(file.path()), Catch::Contains(file.path() + message));
  };
  refused("", ":1: not a file of matmul algorithms");
  refused(with_line(good, 1, "# something else"), ":1: not a file of matmul algorithms");
  refused(with_line(good, 3, "a | b"),
          ":3: wanted 'GPU | cuBLASLt | problem | workspace | algorithm', found 2 columns");
  refused(with_line(good, 4, third), ":4: the same problem as in " + file.path() + ":3");
  refused(with_line(good, 3, third.substr(0, third.size() - 1)), ":3: wanted an algorithm of 128 hexadecimal digits");
  refused(with_line(good, 3, third.substr(0, third.size() - 1) + "g"), ":3: wanted an algorithm of 128");
  const auto field = [&](const std::string& value) {
    const size_t last = third.rfind(" | "), begin = third.rfind(" | ", last - 1) + 3;
    return with_line(good, 3, third.substr(0, begin) + value + third.substr(last));
  };
  refused(field("99999999999"), ":3: wanted a workspace of at most 33554432 bytes, found '99999999999'");
  refused(field("-1"), ":3: wanted a workspace");
  file.write(good);
  REQUIRE(cuda::load_heuristics(file.path()));
}

TEST_CASE("algorithms: one that does not fit its problem is refused with its line") {
  const MatmulSettings settings;
  const File file;
  search(file);
  const std::string good = file.text(), third = line_of(good, 3), fourth = line_of(good, 4);
  file.write(with_line(good, 3, third.substr(0, third.rfind(" | ")) + fourth.substr(fourth.rfind(" | "))));
  REQUIRE(cuda::load_heuristics(file.path()));
  const bool first_is_bf16 = third.find("bf16 to f32") != std::string::npos;
  const ProductData data(first_is_bf16 ? kOther : kProduct);
  REQUIRE_THROWS_WITH(run_op(data.op), Catch::Contains(file.path() + ":3: cuBLASLt does not take this algorithm"));
}

TEST_CASE("algorithms: a file that cannot be written is refused") {
  REQUIRE_THROWS_WITH(cuda::save_heuristics("/nonexistent/algorithms"),
                      Catch::Contains("cannot write /nonexistent/algorithms: No such file"));
}
